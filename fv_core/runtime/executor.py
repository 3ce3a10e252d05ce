"""Executes plans: resolves references, packs compatible calls into forwards, splits the results.

Under `reference` every call, or group of calls, of a request runs by itself. Under `exact` and `fast` those with equal
batch keys share a forward; a component gives calls equal keys under `exact` only if sharing cannot change their bits.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor

from fv_core.cache import CacheContent, CacheRef, ValueRef
from fv_core.errors import Cancelled, FvError
from fv_core.extend.chain import Chain
from fv_core.loop import (
    CacheMode,
    CacheUse,
    CallOutput,
    Component,
    ComponentCall,
    ComponentOutput,
    ResolvedCall,
    StepResult,
    WorkPlan,
)
from fv_core.loop.outputs import described
from fv_core.request import CancelScope, Numerics
from fv_core.runtime.faults import as_fv_error
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.returned import checked
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What one work came to, and what its own calls took: an equal share of each forward, without loading."""

    result: StepResult | FvError
    seconds: float


def execute(works: Sequence[Work]) -> list[StepResult | FvError]:
    """The result of each work, or the error that ended it; one that fails leaves the others alone."""
    return [one.result for one in execute_timed(works)]


@torch.no_grad()
def execute_timed(works: Sequence[Work]) -> list[Executed]:
    """As `execute`, with the time of each."""
    tasks = [_Task(work) for work in works]
    for calls in _packed(tasks):
        _compute(calls)
    return [Executed(result=task.result(), seconds=task.seconds) for task in tasks]


class _Task:
    """A work in progress: what has come back for each call; `error` ends it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.outputs: dict[int, CallOutput] = {}
        self.caches: dict[int, tuple[CacheRef, ...]] = {}
        self.error: FvError | None = None
        self.seconds = 0.0

    def calls(self) -> list[_Call]:
        return [_Call(self, slot, call) for slot, call in enumerate(self.work.plan.calls)]

    def result(self) -> StepResult | FvError:
        if self.error is not None:
            return self.error
        slots = range(len(self.work.plan.calls))
        return StepResult(
            outputs=tuple(self.outputs[slot] for slot in slots),
            caches=tuple(self.caches[slot] for slot in slots),
        )


@dataclass(slots=True)
class _Call:
    """One call of a task, from its preparation to its result."""

    task: _Task
    slot: int
    call: ComponentCall
    component: Component = field(init=False)
    resolved: ResolvedCall = field(init=False)
    key: Hashable = field(init=False)

    def prepare(self) -> bool:
        """Whether it is to be computed: going on, and not answered by an interceptor."""
        if not self.going():
            return False
        work, call = self.task.work, self.call
        try:
            answer = work.chain.answer(call, work.plan)
            if answer is not None:
                self._done(answer, tuple(use.ref for use in call.caches))
                return False
            self.component = work.instance.component(call.component)
            self.resolved = _resolve(call, work)
            self.key = self.component.batch_key(call.op, self.resolved)
            hash(self.key)
        except Exception as error:
            self.fail(error)
            return False
        return True

    def going(self) -> bool:
        """Whether its request has neither failed nor been cancelled; asked before every forward."""
        task, work = self.task, self.task.work
        if task.error is None:
            try:
                work.cancel.check(work.scope.owner)
            except Cancelled as cancelled:
                task.error = cancelled
        return task.error is None

    def accept(self, computed: ComponentOutput) -> None:
        """Takes in what came back; nothing once another call of the request has failed."""
        if self.task.error is not None:
            return
        work = self.task.work
        try:
            work.chain.computed(self.call, work.plan, computed.output)
            uses = zip(self.call.caches, computed.caches, strict=True)
            caches = tuple(_stored(use, content, work.scope) for use, content in uses)
        except Exception as error:
            self.fail(error)
            return
        self._done(computed.output, caches)

    def fail(self, error: Exception, given: str = "") -> None:
        self.task.error = as_fv_error(error, f"component {self.call.component}.{self.call.op}", given)

    def shared_key(self) -> Hashable:
        """What must be equal to share a forward with calls of others, before the component is asked."""
        work, call = self.task.work, self.call
        if work.numerics is Numerics.REFERENCE:
            return (id(self.task), call.group or self.slot)
        static = tuple(sorted(call.static.items()))
        return (id(work.instance), work.numerics, call.component, call.op, static)

    def _done(self, output: CallOutput, caches: tuple[CacheRef, ...]) -> None:
        self.task.outputs[self.slot] = output
        self.task.caches[self.slot] = caches


_Unit: TypeAlias = list[_Call]


def _packed(tasks: Sequence[_Task]) -> list[list[_Unit]]:
    """Units in the order they run, those that may share a forward side by side."""
    packed: dict[Hashable, list[_Unit]] = {}
    for task in tasks:
        for unit in _units(task):
            packed.setdefault(unit[0].shared_key(), []).append(unit)
    return list(packed.values())


def _units(task: _Task) -> list[_Unit]:
    """The calls of a task, those of one group together: a forward has all of them or none."""
    units: dict[str | int, _Unit] = {}
    for call in task.calls():
        units.setdefault(call.slot if call.call.group is None else call.call.group, []).append(call)
    return list(units.values())


def _compute(units: list[_Unit]) -> None:
    batches: dict[Hashable, list[_Call]] = {}
    for unit in units:
        with _timed(unit):
            ready = [call for call in unit if call.prepare()]
        if ready:
            alike = len({call.key for call in ready}) == 1  # a group runs in one forward whatever its keys
            batches.setdefault((alike, ready[0].key if alike else id(unit)), []).extend(ready)
    for batch in batches.values():
        with _timed(batch):
            _forward(batch)


@contextmanager
def _timed(calls: Sequence[_Call]) -> Iterator[None]:
    """Shares what the block takes among the calls, all of one instance; loading is nobody's."""
    instance = calls[0].task.work.instance
    loading, began = instance.loading_s, time.perf_counter()
    yield
    seconds = time.perf_counter() - began - (instance.loading_s - loading)
    for call in calls:
        call.task.seconds += seconds / len(calls)


def _forward(calls: list[_Call]) -> None:
    batch = [call for call in calls if call.going()]
    if not batch:
        return
    first = batch[0]
    try:
        returned = first.component.forward_batch(first.call.op, [call.resolved for call in batch])
        outputs = checked(returned, [call.call for call in batch])
    except Exception as error:
        if len({id(call.task) for call in batch}) == 1:
            rows = ", ".join(f"{name} {described(row)}" for name, row in first.resolved.rows.items())
            first.fail(error, given=rows)
            return
        by_task: dict[int, list[_Call]] = {}
        for call in batch:  # whose fault it is shows when each runs alone
            by_task.setdefault(id(call.task), []).append(call)
        for calls in by_task.values():
            _forward(calls)
        return
    for call, output in zip(batch, outputs, strict=True):
        call.accept(output)


def _resolve(call: ComponentCall, work: Work) -> ResolvedCall:
    scope = work.scope
    rows: dict[str, Tensor | str | int | float] = {
        name: scope.get(row) if isinstance(row, ValueRef) else row for name, row in call.rows.items()
    }
    contents = tuple(
        scope.take(use.ref) if use.mode is CacheMode.APPEND and not use.into else scope.read(use.ref)
        for use in call.caches
    )
    return ResolvedCall(rows=rows, static=call.static, caches=contents, numerics=work.numerics)


def _stored(use: CacheUse, content: CacheContent | None, scope: RequestScope) -> CacheRef:
    if content is None:
        return use.ref
    return scope.append(replace(use.ref, id=use.into, version=0) if use.into else use.ref, content)
