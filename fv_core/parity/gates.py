"""Gates on what a card's runs come to: the same bits however they are run, and nothing left of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fv_core import codec
from fv_core.errors import Cancelled, FvError
from fv_core.parity.bits import bits, tensors_alive
from fv_core.parity.taps import record
from fv_core.parity.trial import Finding, Trial
from fv_core.request import CancelScope, Request
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.job import Job
from fv_core.runtime.snapshot import RequestSnapshot


def finite(trial: Trial) -> Finding:
    """Every request runs to its end, and everything it computes on the way is finite."""
    wrong = []
    for request in trial.requests:
        try:
            taps = record(trial.engine, request).taps
            wrong += [f"{tap} is not finite" for tap, tensor in taps.items() if not tensor.isfinite().all()][
                :1
            ]
        except FvError as error:
            wrong.append(f"{error.code}: {error.message}")
    return Finding(wrong=wrong, of=len(trial.requests), counted="requests that failed or are not finite")


def determinism(trial: Trial) -> Finding:
    """A request comes to the same bits again: in this process, and in a new one."""
    first, request = trial.alone[0], trial.requests[0]
    wrong = ["a second run in this process differs"] if trial.run(request) != first else []
    again = _in_a_new_process(trial, request)
    if again != first:
        wrong.append("a run in a new process differs" if isinstance(again, dict) else str(again))
    return Finding(wrong=wrong, of=2, counted="further runs that differ")


def interleave(trial: Trial) -> Finding:
    """Requests that take steps in turn come to the bits that each comes to alone, in either order."""
    wrong = []
    for order in (1, -1):
        results = trial.engine.run_many(trial.requests[::order])[::order]
        for number, (one, alone) in enumerate(zip(results, trial.alone, strict=True), 1):
            if one.clip is None:
                wrong.append(f"request {number} failed beside others: {one.error}")
            elif bits(one.clip.tensors) != alone:
                wrong.append(f"request {number} differs beside others")
    return Finding(wrong=wrong, of=2 * len(trial.requests), counted="interleaved requests that differ")


def resume(trial: Trial) -> Finding:
    """A request stored after any step, and before the first, goes on to the same bits."""
    wrong, taken = [], 0
    with TemporaryDirectory() as folder, closing(trial.engine.start(trial.requests[0])) as job:
        path = Path(folder, "run.snapshot")
        while not job.done:
            taken += 1
            at = f"before step {taken}, in {job.run.current.id}"
            try:
                trial.engine.snapshot(job).save(path)
                if _resumed(trial, path) != trial.alone[0]:
                    wrong.append(f"resumed {at}, it differs")
            except (FvError, TypeError, ValueError) as error:
                wrong.append(f"cannot be stored or resumed {at}: {error}")
            job.step()
    return Finding(wrong=wrong, of=taken, counted="snapshots that do not come back")


def cancel(trial: Trial) -> Finding:
    """Cancelled during any component call, a request makes no other."""
    wrong, calls = [], _calls(trial)
    for during in range(1, calls):
        made = _cancelled(trial, during)
        if made != during:
            wrong.append(f"cancelled during call {during}, it made {made} calls")
    return Finding(wrong=wrong, of=calls - 1, counted="cancels after which calls began")


def cancel_leak(trial: Trial) -> Finding:
    """However far a request was when it was cancelled, everything comes back."""
    calls = _calls(trial)

    def cancels() -> int:
        for during in range(1, calls):
            _cancelled(trial, during)
        return calls - 1

    return _left_behind(trial, cancels, "cancelled")


def leak(trial: Trial) -> Finding:
    """Finished requests leave nothing behind."""

    def runs() -> int:
        for request in trial.requests:
            trial.engine.run(request)
        return len(trial.requests)

    return _left_behind(trial, runs, "finished")


def _left_behind(trial: Trial, requests: Callable[[], int], ended: str) -> Finding:
    requests()  # what is made once and kept, is made now
    before, held = tensors_alive(), trial.engine.counters()
    made = requests()
    more = max(0, tensors_alive() - before)
    wrong = [f"{more} tensors are alive after {made} {ended} requests that were not before"] if more else []
    if trial.engine.counters() != held:
        wrong.append(f"counters: {held} before, {trial.engine.counters()} after")
        more += 1
    return Finding(wrong=wrong, of=made, counted=f"tensors left by {ended} requests", figure=more)


def _resumed(trial: Trial, path: Path) -> Any:
    with closing(trial.engine.resume(RequestSnapshot.load(path))) as job:
        _finish(job)
        return bits(trial.engine.clip(job).tensors)


def _finish(job: Job) -> None:
    while not job.done:
        job.step()


def _calls(trial: Trial) -> int:
    """Component calls of the first request."""
    return _cancelled(trial, 0)


def _cancelled(trial: Trial, during: int) -> int:
    """How many forwards the first request makes, cancelled within forward `during`; 0 cancels none."""
    scope, made = CancelScope(), 0

    def forward() -> None:
        nonlocal made
        made += 1
        if made == during:
            scope.cancel()

    with _watched(trial.engine.instance(trial.card.model_id), forward):
        try:
            trial.engine.run(trial.requests[0], cancel=scope)
        except Cancelled:
            assert during, "nobody cancelled it"
    return made


@contextmanager
def _watched(instance: ModelInstance, forward: Callable[[], None]) -> Iterator[None]:
    """Calls `forward` at the beginning of every forward of the instance's components."""
    components = [instance.component(name) for name in instance.card.components]
    for component in components:
        setattr(component, "forward_batch", _announced(component.forward_batch, forward))  # noqa: B010
    try:
        yield
    finally:
        for component in components:
            delattr(component, "forward_batch")


def _announced(forward_batch: Callable[..., Any], forward: Callable[[], None]) -> Callable[..., Any]:
    def announced(*call: Any) -> Any:
        forward()
        return forward_batch(*call)

    return announced


def _in_a_new_process(trial: Trial, request: Request) -> object:
    """The bits of a request that `fv_core.parity.again` runs; what it said where it failed."""
    weights = None if trial.weights is None else str(trial.weights)
    order = {
        "card": json.loads(trial.card.to_json()),
        "request": codec.encode(request),
        "engine": {"device": str(trial.engine.device), "dtype": trial.dtype, "weights": weights},
        "threads": torch.get_num_threads(),
    }
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    with TemporaryDirectory() as folder:
        file = Path(folder, "order.json")
        file.write_text(json.dumps(order))
        done = subprocess.run(
            [sys.executable, "-m", "fv_core.parity.again", str(file)],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "4099"},  # another than this process has
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            return f"a new process could not run it: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
        return json.loads(file.with_suffix(".bits").read_text())
