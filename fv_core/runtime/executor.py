"""Executes plans: resolves references, packs compatible calls into forwards, splits the results.

It alone keeps the numerics. Under `reference` and `exact` every call, or group of calls, of a request runs by
itself, so what shares the engine can never change its bits; under `fast` calls with equal batch keys share a forward.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fv_core.cache import CacheRef, ValueRef
from fv_core.errors import FvError
from fv_core.extend.chain import Chain
from fv_core.loop import (
    CacheMode,
    CallOutput,
    Component,
    ComponentCall,
    ComponentOutput,
    ResolvedCall,
    StepResult,
    WorkPlan,
)
from fv_core.request import CancelScope, Numerics
from fv_core.runtime.faults import as_fv_error
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.scope import RequestScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One request's next step, with what executing it needs of the request."""

    plan: WorkPlan
    instance: ModelInstance
    scope: RequestScope
    cancel: CancelScope
    numerics: Numerics
    chain: Chain


@torch.no_grad()
def execute(works: Sequence[Work]) -> list[StepResult | FvError]:
    """The result of each work, or the error that ended it; one that fails leaves the others alone."""
    tasks = [_Task(work) for work in works]
    for calls in _packed(tasks):
        _compute(calls)
    return [task.result() for task in tasks]


class _Task:
    """A work in progress: what has come back for each call; `error` ends it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.outputs: dict[int, CallOutput] = {}
        self.caches: dict[int, tuple[CacheRef, ...]] = {}
        self.error: FvError | None = None

    def calls(self) -> list[_Call]:
        return [_Call(self, slot, call) for slot, call in enumerate(self.work.plan.calls)]

    def result(self) -> StepResult | FvError:
        if self.error is not None:
            return self.error
        slots = range(len(self.work.plan.calls))
        return StepResult(
            outputs=tuple(self.outputs[slot] for slot in slots),
            caches=tuple(self.caches.get(slot, ()) for slot in slots),
        )


@dataclass(slots=True)
class _Call:
    """One call of a task, from its preparation to its result."""

    task: _Task
    slot: int
    call: ComponentCall
    component: Component = field(init=False)
    resolved: ResolvedCall = field(init=False)

    def prepare(self) -> bool:
        """Whether it is to be computed: not failed, not cancelled, not answered by an interceptor."""
        task, work = self.task, self.task.work
        if task.error is not None:
            return False
        try:
            work.cancel.check(work.scope.owner)
            answer = work.chain.answer(self.call, work.plan)
            if answer is not None:
                task.outputs[self.slot] = answer
                return False
            self.component = work.instance.component(self.call.component)
            self.resolved = _resolve(self.call, work.scope)
        except Exception as error:
            self.fail(error)
            return False
        return True

    def accept(self, computed: ComponentOutput) -> None:
        task, work = self.task, self.task.work
        try:
            work.chain.computed(self.call, work.plan, computed.output)
        except FvError as error:
            self.fail(error)
            return
        task.outputs[self.slot] = computed.output
        task.caches[self.slot] = tuple(
            use.ref if content is None else work.scope.append(use.ref, content)
            for use, content in zip(self.call.caches, computed.caches, strict=True)
        )

    def fail(self, error: Exception) -> None:
        self.task.error = as_fv_error(error, f"component {self.call.component}.{self.call.op}")

    def shared_key(self) -> Hashable | None:
        """What must be equal to share a forward with other calls; None: runs alone."""
        work, call = self.task.work, self.call
        if work.numerics is not Numerics.FAST or call.caches or call.group is not None:
            return None
        return (id(work.instance), call.component, call.op, tuple(sorted(call.static.items())))


def _packed(tasks: Sequence[_Task]) -> list[list[_Call]]:
    """Calls in the order they run, those that may share a forward side by side."""
    packed: dict[Hashable, list[_Call]] = {}
    for task in tasks:
        for call in task.calls():
            alone = (id(task), call.call.group or call.slot)
            packed.setdefault(call.shared_key() or alone, []).append(call)
    return list(packed.values())


def _compute(calls: list[_Call]) -> None:
    batches: dict[Hashable, list[_Call]] = {}
    for call in calls:
        if call.prepare():
            grouped = call.call.group is not None
            key = None if grouped else call.component.batch_key(call.call.op, call.resolved)
            batches.setdefault(key, []).append(call)
    for batch in batches.values():
        _forward(batch)


def _forward(batch: list[_Call]) -> None:
    first = batch[0]
    try:
        outputs = first.component.forward_batch(first.call.op, [call.resolved for call in batch])
    except Exception as error:
        if len({id(call.task) for call in batch}) == 1:
            first.fail(error)
            return
        for call in batch:  # whose fault it is shows when each runs alone
            _forward([call])
        return
    for call, output in zip(batch, outputs, strict=True):
        call.accept(output)


def _resolve(call: ComponentCall, scope: RequestScope) -> ResolvedCall:
    rows: dict[str, Tensor | str | int | float] = {
        name: scope.get(row) if isinstance(row, ValueRef) else row for name, row in call.rows.items()
    }
    contents = tuple(scope.take(use.ref) if use.mode is CacheMode.APPEND else scope.read(use.ref) for use in call.caches)
    return ResolvedCall(rows=rows, static=call.static, caches=contents)
