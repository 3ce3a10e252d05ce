"""A sound interceptor for the kit's own tests, and broken twins of it: each keeps to everything but one thing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fv_core.cache import ValueRef
from fv_core.extend import At, Interceptor, InterceptorSpec
from fv_core.loop import CallOutput, ComponentCall, flow_denoise
from fv_core.loop.policies.guidance import combine

flow: Any = flow_denoise


@dataclass(frozen=True, kw_only=True)
class Params:
    """`damping` multiplies the velocity that is repeated; steps before `keep_first` are computed."""

    damping: float = 0.9
    keep_first: int = 1


@dataclass(kw_only=True)
class LooseParams:
    """Anybody may change them."""

    damping: float = 0.9
    keep_first: int = 1


@dataclass(frozen=True, kw_only=True)
class AnyParams:
    """Takes whatever it is given."""

    damping: Any = 0.9
    keep_first: int = 1


@dataclass(frozen=True, kw_only=True)
class State:
    """The last computed velocity of this request's branch, and how often it was computed."""

    last: Tensor | None = None
    computed: int = 0


class Sound(Interceptor[Params, State]):
    """Repeats the last computed velocity on every other step."""

    def initial(self, params: Params) -> State:
        return State()

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        if at.step < params.keep_first or at.step % 2 == 0 or state.last is None:
            return None
        return CallOutput(tensors={"velocity": self.repeated(state.last, params)})

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        return State(last=outputs.tensors["velocity"], computed=state.computed + 1)

    def repeated(self, last: Tensor, params: Params) -> Tensor:
        return last * params.damping


class Honest(Sound):
    """Looks at everything and answers nothing."""

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        return None


class WrongShape(Sound):
    """Answers with a batch axis."""

    def repeated(self, last: Tensor, params: Params) -> Tensor:
        return super().repeated(last, params).unsqueeze(0)


class WrongType(Sound):
    """Answers in another precision."""

    def repeated(self, last: Tensor, params: Params) -> Tensor:
        return super().repeated(last, params).double()


class Raising(Sound):
    """Raises late in a run."""

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        if at.step == 4:
            raise KeyError("lost")
        return super().after(call, at, outputs, state, params)


class NotFinite(Sound):
    """Divides by zero."""

    def repeated(self, last: Tensor, params: Params) -> Tensor:
        return last / 0


class InPlace(Sound):
    """Clamps the request's own latent."""

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        latent = call.rows["latent"]
        assert isinstance(latent, Tensor)
        latent.clamp_(-1, 1)
        return super().before(call, at, state, params)


class StateInPlace(Sound):
    """Fades what it remembers in place."""

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        if state.last is not None:
            state.last.mul_(params.damping)
        return State(last=outputs.tensors["velocity"].clone(), computed=state.computed + 1)


class Random(Sound):
    """Answers with noise that nobody seeded."""

    def repeated(self, last: Tensor, params: Params) -> Tensor:
        return last + torch.randn_like(last)


class Unstorable(Sound):
    """Remembers the step as a set, which no file holds."""

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        held: Any = {at.step}
        return State(last=outputs.tensors["velocity"], computed=held)


class OtherType(Sound):
    """Remembers a number that is not of the declared type."""

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        held: Any = at.step + 0.5
        return State(last=outputs.tensors["velocity"], computed=held)


class Wearing(Sound):
    """Fades with every request that it has begun."""

    def __init__(self) -> None:
        self.begun = 0

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        return replace(super().after(call, at, outputs, state, params), computed=self.begun)

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        answer = super().before(call, at, state, params)
        if at.step == at.total - 1:
            self.begun = state.computed + 1
        return answer and CallOutput(tensors={"velocity": answer.tensors["velocity"] * 0.9**state.computed})


class OneMemory(Sound):
    """Keeps what it remembers on itself, in one place for everything that `key` does not tell apart."""

    def __init__(self) -> None:
        self.kept: dict[object, State] = {}

    def key(self, call: ComponentCall, at: At) -> object:
        return None

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        return super().before(call, at, self.kept.get(self.key(call, at), state), params)

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        self.kept[self.key(call, at)] = super().after(call, at, outputs, state, params)
        return state


class MemoryPerBranch(OneMemory):
    """Tells branches apart, and not requests."""

    def key(self, call: ComponentCall, at: At) -> object:
        return at.branch


class MemoryPerPrompt(OneMemory):
    """Tells requests apart by their prompts: right in one process, lost in another."""

    def key(self, call: ComponentCall, at: At) -> object:
        text = call.rows["text"]
        assert isinstance(text, ValueRef)
        return (at.branch, text.hash)


class Patching(Sound):
    """Changes guidance for the whole process."""

    def __init__(self) -> None:
        if flow.combine is combine:
            flow.combine = lambda cond, uncond, scale: combine(cond, uncond, scale) * 1.01


class Late(Sound):
    """Answers nothing before the ninth step."""

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        return None if at.step < 8 else super().before(call, at, state, params)


class Printing(Honest):
    """Says what it sees."""

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        print("step", at.step)  # noqa: T201
        return super().after(call, at, outputs, state, params)


KEPT: list[npt.NDArray[np.float64]] = []


class Leaking(Honest):
    """Keeps 8 MB for every branch of every request, in no tensor."""

    def initial(self, params: Params) -> State:
        KEPT.append(np.ones(2**20))
        return super().initial(params)


def spec(factory: str, *, altering: bool = True, params: str = "Params", **facts: Any) -> InterceptorSpec:
    """The record of a class of this module."""
    told: dict[str, Any] = {
        "id": f"kit/{factory.lower()}",
        "loop_kinds": ("flow_denoise",),
        "distribution_altering": altering,
        "params": f"{__name__}:{params}",
        "factory": f"{__name__}:{factory}",
    }
    return InterceptorSpec(**{**told, **facts})


SOUND = {"Sound": spec("Sound"), "Honest": spec("Honest", altering=False)}
BROKEN = {
    "NoNamespace": spec("Sound", id="sound"),
    "UnknownKind": spec("Sound", loop_kinds=("flow_denoise", "dreaming")),
    "Absent": spec("Absent"),
    "LooseParams": spec("Sound", params="LooseParams"),
    "AnyParams": spec("Sound", params="AnyParams"),
    **{
        name: spec(name)
        for name in (
            "WrongShape", "WrongType", "Raising", "NotFinite", "InPlace", "StateInPlace", "Random", "Unstorable",
            "OtherType", "Wearing", "OneMemory", "MemoryPerBranch", "MemoryPerPrompt", "Patching",
        )
    },
    "Untrue": spec("Sound", altering=False),
    "Late": spec("Late", altering=False),
    "Printing": spec("Printing"),
    "Leaking": spec("Leaking"),
}  # fmt: skip
"""By what is wrong with them."""
