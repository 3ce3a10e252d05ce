"""The interceptor, its parameters and its state."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fv_core.extend import At, Interceptor
from fv_core.loop import CallOutput, ComponentCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What an engine may set; every field has a default.

    Args:
        keep_first: this many steps are always computed, >= 0.
    """

    keep_first: int = 2

    def __post_init__(self) -> None:
        if self.keep_first < 0:
            raise ValueError(f"keep_first {self.keep_first} is below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The last computed velocity of one guidance branch of one request."""

    last: Tensor | None = None


class EveryOther(Interceptor[Params, State]):
    """Repeats the last velocity on every odd step. It keeps nothing itself: fv keeps the state, and stores it."""

    def initial(self, params: Params) -> State:
        return State()

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        skip = at.step >= params.keep_first and at.step % 2 == 1
        if not skip or state.last is None:
            return None  # compute it
        return CallOutput(tensors={"velocity": state.last})

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        return State(last=outputs.tensors["velocity"])
