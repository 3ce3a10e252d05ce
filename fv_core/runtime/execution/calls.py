"""A step on its way through the executor: its calls, what they are resolved to, and what came back for each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from torch import Tensor

from fv_core.cache import CacheKey, CacheRef, ValueRef
from fv_core.cache.key import stated
from fv_core.errors import Cancelled, FvError
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
from fv_core.runtime.adapters import AdapterStack
from fv_core.runtime.execution.features import found, result_key, stored
from fv_core.runtime.faults import as_fv_error, contained
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.scope import RequestScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One request's next step, with what executing it needs of the request.

    `given`: what it comes to depends on nothing but what the request gives, its seed apart (`given_nodes`).
    `adapters`: the request's, which alter its components.
    """

    plan: WorkPlan
    instance: ModelInstance
    scope: RequestScope
    cancel: CancelScope
    numerics: Numerics
    chain: Chain
    given: bool = False
    adapters: AdapterStack = field(default_factory=AdapterStack)


class Task:
    """A work in progress: what has come back for each call; `error` ends it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.outputs: dict[int, CallOutput] = {}
        self.caches: dict[int, tuple[CacheRef, ...]] = {}
        self.error: FvError | None = None
        self.seconds = 0.0

    def units(self) -> list[Unit]:
        """Its calls, those of one group together: a forward has all of them or none."""
        units: dict[str | int, Unit] = {}
        for slot, call in enumerate(self.work.plan.calls):
            units.setdefault(slot if call.group is None else call.group, []).append(Call(self, slot, call))
        return list(units.values())

    def result(self) -> StepResult | FvError:
        if self.error is not None:
            return self.error
        slots = range(len(self.work.plan.calls))
        return StepResult(
            outputs=tuple(self.outputs[slot] for slot in slots),
            caches=tuple(self.caches[slot] for slot in slots),
        )


@dataclass(slots=True)
class Call:
    """One call of a task, from its preparation to its result."""

    task: Task
    slot: int
    call: ComponentCall
    component: Component = field(init=False)
    resolved: ResolvedCall = field(init=False)
    key: Hashable = field(init=False)
    result_key: CacheKey | None = None
    _shared_key: Hashable | None = None

    @property
    def where(self) -> str:
        """The component and operation, in words."""
        return f"component {self.call.component}.{self.call.op}"

    def name(self) -> CacheKey | None:
        """The key of its result; None: it is not one to be shared, or its request goes on no more."""
        if self.going():
            try:
                with contained(self.where):
                    self.result_key = result_key(self.call, self.task.work)
            except Exception as error:
                self.fail(error)
        return self.result_key

    def prepare(self) -> bool:
        """Whether it is to be computed: going on, answered by no interceptor, and not there already."""
        if not self.going():
            return False
        work, call = self.task.work, self.call
        try:
            with contained(self.where):
                answer = work.chain.answer(call, work.plan)
            if answer is not None:
                self._done(answer, tuple(use.ref for use in call.caches))
                return False
            if self.result_key is not None and (kept := found(self.result_key, call, work.scope)):
                self._done(*kept)
                return False
            with contained(self.where):
                self.component = work.instance.component(call.component)
                self.resolved = _resolve(call, work)
                self.key = (_kinds(self.resolved), self.component.batch_key(call.op, self.resolved))
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

    def accept(self, computed: ComponentOutput, notes: tuple[str, ...] = ()) -> None:
        """Takes in what came back; nothing once another call of the request has failed."""
        if self.task.error is not None:
            return
        work = self.task.work
        try:
            with contained(self.where):
                work.chain.computed(self.call, work.plan, computed.output)
            caches = stored(self.result_key, self.call, computed, work.scope)
        except Exception as error:
            self.fail(error)
            return
        output = (
            replace(computed.output, notes=(*computed.output.notes, *notes)) if notes else computed.output
        )
        self._done(output, caches)

    def fail(self, error: Exception, given: str = "") -> None:
        self.task.error = as_fv_error(error, self.where, given)

    def shared_key(self) -> Hashable:
        """What must be equal to share a forward with calls of others, before the component is asked."""
        if self._shared_key is None:
            work, call = self.task.work, self.call
            self._shared_key = (
                (id(self.task), call.group or self.slot)
                if work.numerics is Numerics.REFERENCE
                else (
                    id(work.instance),
                    work.numerics,
                    call.component,
                    work.adapters.key(call.component),
                    call.op,
                    stated(call.static),
                )
            )
        return self._shared_key

    def adapted(self) -> AbstractContextManager[None]:
        """A block in which its component computes with the request's adapters."""
        work = self.task.work
        return work.adapters.applied(self.call.component, work.instance, work.numerics)

    def _done(self, output: CallOutput, caches: tuple[CacheRef, ...]) -> None:
        self.task.outputs[self.slot] = output
        self.task.caches[self.slot] = caches


Unit: TypeAlias = list[Call]
"""Calls that a forward has all of or none of: one call, or those of one group."""


def rows(units: Sequence[Unit]) -> int:
    return sum(map(len, units))


def spare(unit: Unit) -> Unit:
    """The unit with lists of caches of its own: a component changes them, and those of `unit` are needed again."""
    if not any(call.resolved.caches for call in unit):
        return unit
    copies = [copy(call) for call in unit]
    for call in copies:
        call.resolved = replace(call.resolved, caches=tuple(map(list, call.resolved.caches)))
    return copies


def _kinds(call: ResolvedCall) -> Hashable:
    """Rows by name and type: stacking tensors of two types would change one of them."""
    return tuple(
        (name, row.dtype if isinstance(row, Tensor) else type(row)) for name, row in sorted(call.rows.items())
    )


def _resolve(call: ComponentCall, work: Work) -> ResolvedCall:
    scope = work.scope
    resolved: dict[str, Tensor | str | int | float] = {
        name: scope.get(row) if isinstance(row, ValueRef) else row for name, row in call.rows.items()
    }
    contents = tuple(
        scope.take(use.ref) if use.mode is CacheMode.APPEND and not use.into else scope.read(use.ref)
        for use in call.caches
    )
    return ResolvedCall(rows=resolved, static=call.static, caches=contents, numerics=work.numerics)
