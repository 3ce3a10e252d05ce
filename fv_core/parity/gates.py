"""Gates on what a card's runs come to: finite, and the same bits however they are run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from fv_core.errors import FvError
from fv_core.parity.bits import Bits, bits
from fv_core.parity.taps import record
from fv_core.parity.trial import Finding, Trial, stride_of
from fv_core.runtime.job import Job
from fv_core.runtime.snapshots.snapshot import RequestSnapshot


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
    if not wrong:
        try:
            trial.alone  # noqa: B018  # a recording is no clip: whether that is what was asked for shows here
        except FvError as error:
            wrong.append(f"{error.code}: {error.message}")
    return Finding(wrong=wrong, of=len(trial.requests), counted="requests that failed or are not finite")


def determinism(trial: Trial) -> Finding:
    """Every request comes to the same bits again: in this process, and in a new one."""
    wrong = [
        f"a second run of request {number} in this process differs"
        for number, (request, first) in enumerate(zip(trial.requests, trial.alone, strict=True), 1)
        if trial.run(request) != first
    ]
    again = trial.again
    if isinstance(again, str):
        wrong.append(f"a new process could not run them: {again}")
    else:
        wrong += [
            f"a run of request {number} in a new process differs"
            for number, (one, first) in enumerate(zip(again.bits, trial.alone, strict=True), 1)
            if one != first
        ]
    return Finding(wrong=wrong, of=2 * len(trial.requests), counted="further runs that differ")


def process(trial: Trial) -> Finding:
    """No run writes to the state of its process: global generators, torch's settings, the environment."""
    again = trial.again
    wrong = [again] if isinstance(again, str) else again.changed
    return Finding(wrong=wrong, of=len(trial.requests), counted="changes of the process")


def resume(trial: Trial) -> Finding:
    """A request stored before any step goes on to the same bits; those after the first, before a few steps."""
    wrong: list[str] = []
    taken = 0
    for number in range(len(trial.requests)):
        found = list(_comes_back(trial, number))
        taken += len(found)
        wrong += filter(None, found)
    return Finding(wrong=wrong, of=taken, counted="snapshots that do not come back")


def _comes_back(trial: Trial, number: int) -> Iterator[str]:
    """What is wrong with each snapshot that was taken of a request, "" where nothing is."""
    request, alone = trial.requests[number], trial.alone[number]
    stride = stride_of(number, trial.steps[number])
    with TemporaryDirectory() as folder, closing(trial.engine.start(request)) as job:
        path, taken = Path(folder, "run.snapshot"), 0
        while not job.done:
            taken += 1
            if taken % stride == 0:
                at = f"before step {taken} of request {number + 1}, in {job.run.current.id}"
                yield _stored(trial, job, path, alone, at)
            job.step()


def _stored(trial: Trial, job: Job, path: Path, alone: Bits, at: str) -> str:
    try:
        trial.engine.snapshot(job).save(path)
        return "" if _resumed(trial, path) == alone else f"resumed {at}, it differs"
    except (FvError, TypeError, ValueError) as error:
        return f"cannot be stored or resumed {at}: {error}"


def _resumed(trial: Trial, path: Path) -> Bits:
    with closing(trial.engine.resume(RequestSnapshot.load(path))) as job:
        while not job.done:
            job.step()
        return bits(trial.engine.clip(job).tensors)
