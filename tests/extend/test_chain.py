"""The chain of interceptors: who answers, what each is told, and where their states live."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core.errors import RunError
from fv_core.extend import At, Interceptor, InterceptorSpec
from fv_core.extend.chain import Chain, Enabled
from fv_core.loop import CallOutput, ComponentCall, WorkKind, WorkPlan


@dataclass(frozen=True, kw_only=True)
class Params:
    answers_from: int = 10


@dataclass(frozen=True, kw_only=True)
class Seen:
    last: Tensor | None = None
    steps: tuple[int, ...] = ()


class Repeat(Interceptor[Params, Seen]):
    """Remembers what was computed, and repeats it from step `answers_from` on."""

    def initial(self, params: Params) -> Seen:
        return Seen()

    def before(self, call: ComponentCall, at: At, state: Seen, params: Params) -> CallOutput | None:
        if at.step < params.answers_from or state.last is None:
            return None
        return CallOutput(tensors={"velocity": state.last})

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: Seen, params: Params) -> Seen:
        return replace(state, last=outputs.tensors["velocity"], steps=(*state.steps, at.step))


class Plain(Interceptor[Params, Seen]):
    def initial(self, params: Params) -> Seen:
        return Seen()


class Broken(Plain):
    def before(self, call: ComponentCall, at: At, state: Seen, params: Params) -> Any:
        if params.answers_from == 0:
            return "an answer"
        raise KeyError("lost")


class BrokenAfter(Plain):
    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: Seen, params: Params) -> Seen:
        raise KeyError("lost")


class BrokenInitial(Plain):
    def initial(self, params: Params) -> Seen:
        raise KeyError("lost")


def enabled(interceptor: Interceptor[Any, Any], ident: str = "toy/one", answers_from: int = 10) -> Enabled:
    spec = InterceptorSpec(
        id=ident,
        loop_kinds=("flow_denoise",),
        distribution_altering=True,
        params="toy:Params",
        factory="toy:Repeat",
    )
    return Enabled(spec=spec, interceptor=interceptor, params=Params(answers_from=answers_from))


def plan(step: int = 0, kind: WorkKind = WorkKind.FLOW_DENOISE) -> WorkPlan:
    return WorkPlan(calls=(call("cond"), call("uncond")), kind=kind, step=step, total=20, sigma=0.5)


def call(branch: str) -> ComponentCall:
    return ComponentCall(component="dit", op="velocity", rows={}, branch=branch)


def output(number: float) -> CallOutput:
    return CallOutput(tensors={"velocity": torch.tensor(number)})


def test_states_are_kept_per_branch_and_follow_what_was_computed() -> None:
    chain = Chain(enabled=[enabled(Repeat())])
    for step in range(3):
        assert chain.answer(call("cond"), plan(step)) is None
        chain.computed(call("cond"), plan(step), output(step))
    chain.computed(call("uncond"), plan(0), output(9.0))
    assert chain.states.keys() == {("toy/one", "cond"), ("toy/one", "uncond")}
    assert chain.states["toy/one", "cond"].steps == (0, 1, 2)
    assert chain.states["toy/one", "uncond"].steps == (0,)


def test_the_first_that_answers_ends_the_call() -> None:
    first, second = enabled(Repeat(), "toy/one", answers_from=1), enabled(Repeat(), "toy/two", answers_from=1)
    chain = Chain(enabled=[first, second])
    chain.states["toy/one", "cond"] = Seen(last=torch.tensor(1.0))
    chain.states["toy/two", "cond"] = Seen(last=torch.tensor(2.0))
    answer = chain.answer(call("cond"), plan(1))
    assert answer is not None
    assert answer.tensors["velocity"] == 1.0
    assert chain.answer(call("cond"), plan(0)) is None


def test_work_of_another_kind_is_not_shown() -> None:
    chain = Chain(enabled=[enabled(Broken())])
    assert chain.answer(call("cond"), plan(kind=WorkKind.VAE_DECODE)) is None
    chain.computed(call("cond"), plan(kind=WorkKind.COMPONENT), output(0.0))
    assert chain.states == {}


def test_interceptor_is_told_where_it_stands() -> None:
    seen: list[At] = []

    class Look(Plain):
        def before(self, call: ComponentCall, at: At, state: Seen, params: Params) -> None:
            seen.append(at)

    Chain(enabled=[enabled(Look())]).answer(call("uncond"), plan(3))
    assert seen == [At(kind=WorkKind.FLOW_DENOISE, step=3, total=20, sigma=0.5, branch="uncond")]


@pytest.mark.parametrize(
    ("interceptor", "answers_from", "words"),
    [(Broken(), 1, "KeyError"), (Broken(), 0, "answered with a str"), (BrokenInitial(), 1, "KeyError")],
)
def test_fault_before_a_call_is_the_interceptors(
    interceptor: Interceptor[Any, Any], answers_from: int, words: str
) -> None:
    with pytest.raises(RunError) as caught:
        Chain(enabled=[enabled(interceptor, answers_from=answers_from)]).answer(call("cond"), plan())
    assert caught.value.code == "FV503"
    assert "toy/one" in caught.value.message
    assert words in caught.value.message


def test_fault_after_a_call_is_the_interceptors() -> None:
    with pytest.raises(RunError) as caught:
        Chain(enabled=[enabled(BrokenAfter())]).computed(call("cond"), plan(), output(0.0))
    assert caught.value.code == "FV503"


def test_enabled_tells_id_and_parameters() -> None:
    assert str(enabled(Repeat(), answers_from=3)) == "toy/one:answers_from=3"


def test_state_type_is_read_off_the_declaration() -> None:
    assert Repeat.state_type() is Seen
    assert Broken.state_type() is Seen
