"""Runs the enabled interceptors around component calls; their states travel with the request, never with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from fv_core import codec
from fv_core.codec import JSON
from fv_core.errors import FvError, RunError
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

    def __str__(self) -> str:
        """Id and parameters, as results and snapshots tell them: `halfskip/every-other:keep_first=2`."""
        params = cast(dict[str, JSON], codec.encode(self.params))
        told = ",".join(f"{name}={json.dumps(value)}" for name, value in params.items() if name != "type")
        return f"{self.spec.id}:{told}" if told else self.spec.id


@dataclass(slots=True, kw_only=True)
class Chain:
    """The interceptors of one node of one request, in order, and their states so far.

    The first one that answers a call ends it; the states of all follow only calls that were computed.
    """

    enabled: Sequence[Enabled] = ()
    states: dict[StateKey, Any] = field(default_factory=dict)

    def answer(self, call: ComponentCall, plan: WorkPlan) -> CallOutput | None:
        """What an interceptor answers instead of computing; None: nobody does.

        Raises:
            RunError: FV503, an interceptor raised or answered with something else than a `CallOutput`.
        """
        for one in self._for(plan):
            at = _at(call, plan)
            output = self._guard(
                one, lambda o=one, a=at: o.interceptor.before(call, a, self._state(o, a), o.params)
            )
            if output is None:
                continue
            if not isinstance(output, CallOutput):
                raise _failed(one, f"answered with a {type(output).__name__}, not a CallOutput")
            return output
        return None

    def computed(self, call: ComponentCall, plan: WorkPlan, output: CallOutput) -> None:
        """Tells every interceptor what was computed.

        Raises:
            RunError: FV503, an interceptor raised.
        """
        for one in self._for(plan):
            at = _at(call, plan)
            self.states[one.spec.id, at.branch] = self._guard(
                one, lambda o=one, a=at: o.interceptor.after(call, a, output, self._state(o, a), o.params)
            )

    def _for(self, plan: WorkPlan) -> list[Enabled]:
        return [one for one in self.enabled if plan.kind in one.spec.loop_kinds]

    def _state(self, one: Enabled, at: At) -> Any:
        key = (one.spec.id, at.branch)
        if key not in self.states:
            self.states[key] = one.interceptor.initial(one.params)
        return self.states[key]

    def _guard(self, one: Enabled, call: Any) -> Any:
        try:
            return call()
        except FvError:
            raise
        except Exception as error:
            raise _failed(one, f"raised {type(error).__name__}: {error}") from error


def _at(call: ComponentCall, plan: WorkPlan) -> At:
    return At(kind=plan.kind, step=plan.step, total=plan.total, sigma=plan.sigma, branch=call.branch)


def _failed(one: Enabled, rule: str) -> RunError:
    return RunError(
        "FV503",
        name=f"interceptor {one.spec.id}",
        rule=rule,
        remedy="Switch it off for this engine, or report it to its author.",
    )
