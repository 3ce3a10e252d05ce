"""Two interceptors for the gates: one that keeps its state as it should, and its twin that keeps it in the module.

Both repeat a damped copy of the last computed velocity on every other step, so that each answer depends on the state.
They say that they do not alter the distribution, which lets them run where bits are promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fv_core.extend import At, Interceptor, InterceptorSpec
from fv_core.loop import CallOutput, ComponentCall


@dataclass(frozen=True, kw_only=True)
class Params:
    """`damping` multiplies the velocity that is repeated."""

    damping: float = 0.9


@dataclass(frozen=True, kw_only=True)
class State:
    """The last computed velocity of this request's branch, and how often it was computed."""

    last: Tensor | None = None
    computed: int = 0


class OwnState(Interceptor[Params, State]):
    """Remembers in the state that the runtime keeps per request and branch."""

    def initial(self, params: Params) -> State:
        return State()

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        if at.step % 2 == 0 or state.last is None:
            return None
        return CallOutput(tensors={"velocity": state.last * (params.damping / state.computed)})

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        return State(last=outputs.tensors["velocity"], computed=state.computed + 1)


LAST: dict[str, State] = {}


class GlobalState(OwnState):
    """The same, but what it remembers belongs to the process: the mistake that the gates exist for."""

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        if at.step == 0:
            LAST.pop(at.branch, None)
        return super().before(call, at, LAST.get(at.branch, State()), params)

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        LAST[at.branch] = super().after(call, at, outputs, LAST.get(at.branch, State()), params)
        return state


def spec(factory: str, *, altering: bool = False) -> InterceptorSpec:
    """The record of `OwnState` or `GlobalState`."""
    facts: dict[str, Any] = {"loop_kinds": ("flow_denoise",), "params": f"{__name__}:Params"}
    return InterceptorSpec(
        id=f"gate/{factory.lower()}", factory=f"{__name__}:{factory}", distribution_altering=altering, **facts
    )
