"""Taps: a job stepped by hand while everything it computes is recorded, or while a recording is replayed onto it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fv_core.cache import ValueRef
from fv_core.errors import FvError
from fv_core.loop import StepResult
from fv_core.parity.recording import Recording, RecordingFacts, copied
from fv_core.program import Node
from fv_core.request import Request
from fv_core.runtime.engine import Engine
from fv_core.runtime.environment import environment
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.execution.executor import execute_timed
from fv_core.runtime.job import Job, Observer
from fv_core.runtime.records.probes import as_measured
from fv_core.runtime.results import slot_tensor
from fv_core.runtime.run import RequestRun


def record(
    engine: Engine,
    request: Request,
    *,
    replay: Mapping[str, Tensor] | None = None,
    observer: Observer | None = None,
) -> Recording:
    """Runs the request under reference numerics and records its taps.

    Args:
        replay: another run's taps. What its nodes had made after each step is put in place of this run's own, so that
            every component is called with the other run's inputs.

    Raises:
        FvError: whatever refused or ended the request.
    """
    instance = engine.instance(str(request.model))
    taps: dict[str, Tensor] = {}
    with closing(engine.start(as_measured(request), observer=observer)) as job:
        for step in steps(job):
            taps |= step.taps()
            if replay is not None:
                step.replay(replay)
        for artifact, slot in job.run.artifacts.items():
            taps[artifact] = copied(slot_tensor(job.run, slot))
        facts = RecordingFacts(
            source="fv",
            card_digest=instance.card.digest(),
            request=job.run.request,
            environment=environment(instance.card, instance.device),
        )
    return Recording(facts=facts, taps=taps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step that a job has just taken at `node`."""

    run: RequestRun
    node: Node
    work: Work
    result: StepResult = field(repr=False)

    def taps(self) -> dict[str, Tensor]:
        """What the components returned, then what the node has made of its outputs."""
        found = {
            f"{self._prefix}/{call.branch}/{name}": copied(tensor)
            for call, output in zip(self.work.plan.calls, self.result.outputs, strict=True)
            for name, tensor in output.tensors.items()
        }
        return found | {f"{self._prefix}/{role}": copied(tensor) for role, tensor in self._made()}

    def replay(self, taps: Mapping[str, Tensor]) -> None:
        """Puts the recorded value of each output in place of the node's own."""
        for role, own in list(self._made()):
            tap = taps.get(f"{self._prefix}/{role}")
            if tap is not None:
                self._put(role, tap.to(own.device, own.dtype))

    @property
    def _prefix(self) -> str:
        return f"{self.node.id}/{self.work.plan.step}"

    @property
    def _finished(self) -> bool:
        return self.node.id in self.run.finished

    def _made(self) -> Iterator[tuple[str, Tensor]]:
        """The node's outputs: in its state under their own names while it works, in their slots once it is done."""
        for role, slot in self.node.writes.items():
            working = None if self._finished else self.run.frontier[self.node.id].state
            value = self.run.slots.get(slot) if self._finished else getattr(working, role, None)
            if isinstance(value, ValueRef):
                value = self.run.scope.get(value)
            if isinstance(value, Tensor):
                yield role, value

    def _put(self, role: str, value: Tensor) -> None:
        if not self._finished:
            now = self.run.frontier[self.node.id]
            now.state = replace(now.state, **{role: value})
            return
        slot = self.node.writes[role]
        stored = isinstance(self.run.slots[slot], ValueRef)
        self.run.slots[slot] = self.run.scope.put(value) if stored else value


def steps(
    job: Job, look: Callable[[RequestRun, Work, StepResult], None] = lambda run, work, result: None
) -> Iterator[Step]:
    """Takes the job's steps one by one, each told before the next.

    Args:
        look: sees each result before the job takes it in.

    Raises:
        FvError: what ended the job.
    """
    while not job.done:
        node, work = job.run.current, job.work()
        if work is not None:
            (executed,) = execute_timed([work])
            result = executed.result
            if not isinstance(result, FvError):
                look(job.run, work, result)
            with torch.no_grad():
                job.accept(work, executed, executed.seconds)
        if job.error is not None:
            raise job.error
        assert work is not None and not isinstance(result, FvError)  # or the job had failed
        yield Step(run=job.run, node=node, work=work, result=result)
