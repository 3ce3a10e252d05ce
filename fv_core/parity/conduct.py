"""Gates on how a card's loops conduct themselves step by step: kernel-free `next`, purity, and what they emit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fv_core.loop import StepResult
from fv_core.parity.bits import fingerprint
from fv_core.parity.taps import steps
from fv_core.parity.trial import Finding, Trial
from fv_core.request import MediaChunk, RequestEvent
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.run import RequestRun


def kernel_free_next(trial: Trial) -> Finding:
    """`next` computes nothing and changes nothing; views, and reads of single numbers on the host, are free."""

    def look(run: RequestRun, work: Work, result: StepResult) -> Iterator[str]:
        loop, state = run.loop, run.state
        new = loop.update(state, loop.predict(state, result), result)
        for which, each in (("", state), (", after it", new)):
            before = fingerprint(each)
            with _Kernels() as kernels:
                loop.next(each)
            at = f"{_at(run, work)}{which}"
            yield from (f"next ran {kernel}, {at}" for kernel in kernels.run[:1])
            if fingerprint(each) != before:
                yield f"next changed its state, {at}"
        loop.next(state)  # the last word on where the run is

    return _walked(trial, look, "faults of next")


def purity(trial: Trial) -> Finding:
    """`predict` and `update` leave what they get as it was, and give the same twice."""

    def look(run: RequestRun, work: Work, result: StepResult) -> Iterator[str]:
        loop, state = run.loop, run.state
        prediction = loop.predict(state, result)
        for name, call, given in (
            ("predict", loop.predict, (state, result)),
            ("update", loop.update, (state, prediction, result)),
        ):
            before = fingerprint(given)
            one, other = (fingerprint(call(*given)) for _ in range(2))
            if fingerprint(given) != before:
                yield f"{name} changed what it was given, {_at(run, work)}"
            elif one != other:
                yield f"{name} gave something else the second time, {_at(run, work)}"

    return _walked(trial, look, "faults of predict and update")


def emission(trial: Trial) -> Finding:
    """Chunks come numbered from 0, in order, and together are the clip's frames."""
    wrong: list[str] = []
    of = 0
    for number, request in enumerate(trial.requests, 1):
        chunks: list[MediaChunk] = []

        def observe(event: RequestEvent, chunks: list[MediaChunk] = chunks) -> None:
            if isinstance(event, MediaChunk):
                chunks.append(event)

        frames = trial.engine.run(request, observer=observe).frames
        wrong += [f"request {number}: {fault}" for fault in _misplaced(chunks, frames)]
        of += len(chunks)
    note = "" if of else "no chunk was emitted"
    return Finding(wrong=wrong, of=of, counted="chunks out of place", note=note)


def _misplaced(chunks: Sequence[MediaChunk], frames: npt.NDArray[np.uint8]) -> Iterator[str]:
    shown = 0
    for number, chunk in enumerate(chunks):
        if chunk.index != number:
            yield f"chunk {number} came with index {chunk.index}"
        elif not np.array_equal(chunk.frames, frames[shown : shown + len(chunk.frames)]):
            yield f"chunk {number} is not the clip's frames from {shown} on"
        shown += len(chunk.frames)
    if chunks and shown != len(frames):
        yield f"{shown} frames were emitted, the clip has {len(frames)}"


def _walked(
    trial: Trial, look: Callable[[RequestRun, Work, StepResult], Iterator[str]], counted: str
) -> Finding:
    """Steps every request by hand, and has every step looked at before it is taken in."""
    wrong: list[str] = []
    of = 0

    @torch.no_grad()
    def looked(run: RequestRun, work: Work, result: StepResult) -> None:
        wrong.extend(look(run, work, result))

    for request in trial.requests:
        with closing(trial.engine.start(request)) as job:
            for _ in steps(job, looked):
                of += 1
    return Finding(wrong=wrong, of=of, counted=counted)


def _at(run: RequestRun, work: Work) -> str:
    return f"{run.current.id} step {work.plan.step}"


class _Kernels(TorchDispatchMode):
    """Lists the operations that compute something."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.run: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not (_is_view(func) or _is_host_read(func, args)):
            self.run.append(str(func))
        return func(*args, **(kwargs or {}))


def _is_view(func: Any) -> bool:
    infos = [argument.alias_info for argument in func._schema.arguments if argument.alias_info is not None]
    return bool(infos) and not any(info.is_write for info in infos)


def _is_host_read(func: Any, args: Any) -> bool:
    reads = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)
    return func in reads and isinstance(args[0], Tensor) and args[0].device.type == "cpu"
