"""Runs the enabled interceptors around component calls; their states travel with the request, never with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from fv_core import codec
from fv_core.codec import JSON
from fv_core.errors import FvError, RunError
from fv_core.extend.answers import Seal, Structures
from fv_core.extend.contract import At, Interceptor, InterceptorSpec
from fv_core.loop.work import CallOutput, ComponentCall, WorkPlan

StateKey: TypeAlias = tuple[str, str]
"""Interceptor id and guidance branch; a request keeps one mapping per node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enabled:
    """An interceptor that an engine has switched on, with its parameters."""

    spec: InterceptorSpec
    interceptor: Interceptor[Any, Any]
    params: Any

    @property
    def may_skip(self) -> bool:
        """Whether it may answer a step instead of having it computed."""
        return type(self.interceptor).before is not Interceptor.before

    @property
    def follows(self) -> bool:
        """Whether it wants to know what was computed."""
        return type(self.interceptor).after is not Interceptor.after

    def __str__(self) -> str:
        """Id and parameters, as results and snapshots tell them: `halfskip/every-other:keep_first=2`."""
        params = cast(dict[str, JSON], codec.encode(self.params))
        told = ",".join(f"{name}={json.dumps(value)}" for name, value in params.items() if name != "type")
        return f"{self.spec.id}:{told}" if told else self.spec.id


@dataclass(slots=True, kw_only=True)
class Chain:
    """The interceptors of one node of one request, in order, and their states so far.

    The first one that answers a call ends it; the states of all follow only calls that were computed. A hook that an
    interceptor does not define is never called.
    """

    enabled: Sequence[Enabled] = ()
    states: dict[StateKey, Any] = field(default_factory=dict)
    _structures: Structures = field(default_factory=Structures)
    _answerers: dict[tuple[str, str, str], tuple[int, str]] = field(default_factory=dict)

    def answer(self, call: ComponentCall, plan: WorkPlan) -> CallOutput | None:
        """What an interceptor answers instead of computing; None: nobody does.

        Raises:
            RunError: FV503, an interceptor raised or answered with something else than a `CallOutput`; FV507, with
                one unlike what is computed; FV508, it changed the call's rows.
        """
        for one in self._for(plan):
            if not one.may_skip:
                continue
            at = At.of(call, plan)
            state = self._state(one, at)
            seal = Seal(row=call.rows)
            output = _run(one, seal, one.interceptor.before, call, at, state, one.params)
            if output is None:
                continue
            if not isinstance(output, CallOutput):
                raise _failed(one, f"answered with a {type(output).__name__}, not a CallOutput")
            self._structures.check(_name(one), call, at, output)
            self._answerers[_place(call)] = (plan.step, one.spec.id)
            return output
        return None

    def computed(self, call: ComponentCall, plan: WorkPlan, output: CallOutput) -> None:
        """Tells every interceptor what was computed.

        Raises:
            RunError: FV503, an interceptor raised or returned no state; FV508, it changed the rows or the outputs.
        """
        if self.enabled:
            self._structures.learn(call, output)
        for one in self._for(plan):
            if not one.follows:
                continue
            at = At.of(call, plan)
            state = self._state(one, at)
            seal = Seal(row=call.rows, output=output.tensors)
            after = _run(one, seal, one.interceptor.after, call, at, output, state, one.params)
            self.states[one.spec.id, at.branch] = _checked(one, "after", after)

    def attends(self, plan: WorkPlan) -> bool:
        """Whether an interceptor attaches to calls of this plan."""
        return bool(self._for(plan))

    def answerer(self, call: ComponentCall, plan: WorkPlan) -> str | None:
        """The id of the interceptor that answered this call of the current step; None where it was computed."""
        step, ident = self._answerers.get(_place(call), (-1, ""))
        return ident if step == plan.step else None

    def _for(self, plan: WorkPlan) -> list[Enabled]:
        return [one for one in self.enabled if plan.kind in one.spec.loop_kinds]

    def _state(self, one: Enabled, at: At) -> Any:
        key = (one.spec.id, at.branch)
        if key not in self.states:
            initial = _run(one, Seal(), one.interceptor.initial, one.params)
            self.states[key] = _checked(one, "initial", initial)
        return self.states[key]


def _run(one: Enabled, seal: Seal, hook: Callable[..., Any], *given: Any) -> Any:
    try:
        returned = hook(*given)
    except FvError:
        raise
    except Exception as error:
        raise _failed(one, f"raised {type(error).__name__}: {error}") from error
    if changed := seal.broken():
        raise RunError(
            "FV508",
            name=f"{_name(one)}: {changed}",
            rule="was changed by it, though the request's own state holds it",
            remedy="Switch it off for this engine, or report it to its author: hooks return new tensors.",
        )
    return returned


def _checked(one: Enabled, hook: str, state: Any) -> Any:
    """The state that a hook returned, if it is of the declared type: forgetting to return one is told at once."""
    kind = one.interceptor.state_type()
    if isinstance(kind, type) and not isinstance(state, kind):
        raise _failed(one, f"{hook} returned a {type(state).__name__}, its state is a {kind.__name__}")
    return state


def _place(call: ComponentCall) -> tuple[str, str, str]:
    return (call.component, call.op, call.branch)


def _name(one: Enabled) -> str:
    return f"interceptor {one.spec.id}"


def _failed(one: Enabled, rule: str) -> RunError:
    return RunError(
        "FV503",
        name=_name(one),
        rule=rule,
        remedy="Switch it off for this engine, or report it to its author.",
    )
