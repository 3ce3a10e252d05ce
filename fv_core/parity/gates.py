"""Gates on what a card's runs come to: finite, and the same bits however they are run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from fv_core.errors import FvError
from fv_core.parity.again import run_again
from fv_core.parity.bits import Bits, bits
from fv_core.parity.taps import record
from fv_core.parity.trial import Finding, Trial
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
    again = run_again(trial, request)
    if isinstance(again, str):
        wrong.append(f"a new process could not run it: {again}")
    elif again != first:
        wrong.append("a run in a new process differs")
    return Finding(wrong=wrong, of=2, counted="further runs that differ")


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


def _resumed(trial: Trial, path: Path) -> Bits:
    with closing(trial.engine.resume(RequestSnapshot.load(path))) as job:
        while not job.done:
            job.step()
        return bits(trial.engine.clip(job).tensors)
