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


class BrokenInitial(Repeat):
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


class Forgetful(Plain):
    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: Seen, params: Params) -> Any:
        """Returns nothing."""


class ForgetfulInitial(Repeat):
    def initial(self, params: Params) -> Any:
        """Returns nothing."""


@pytest.mark.parametrize(("interceptor", "hook"), [(Forgetful(), "after"), (ForgetfulInitial(), "initial")])
def test_a_hook_that_returns_no_state_is_told_at_once(interceptor: Interceptor[Any, Any], hook: str) -> None:
    with pytest.raises(RunError) as caught:
        Chain(enabled=[enabled(interceptor)]).computed(call("cond"), plan(), output(0.0))
    assert caught.value.code == "FV503"
    assert f"{hook} returned a NoneType, its state is a Seen" in caught.value.message


def test_a_hook_that_is_not_defined_is_never_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*facts: Any) -> None:
        raise AssertionError

    for hook in ("before", "after"):
        monkeypatch.setattr(Interceptor, hook, refuse)
    chain = Chain(enabled=[enabled(Plain())])
    assert chain.answer(call("cond"), plan()) is None
    chain.computed(call("cond"), plan(), output(0.0))
    assert chain.states == {}


class InPlace(Repeat):
    """Works on the tensors that it is handed, each in a way of its own."""

    def __init__(self, way: str) -> None:
        self.way = way

    def before(self, call: ComponentCall, at: At, state: Seen, params: Params) -> CallOutput | None:
        rows: Any = call.rows
        if self.way == "row":
            rows["latent"].mul_(2)
        if self.way == "view of a row":
            rows["latent"][0] = 0
        if self.way == "another row":
            rows["latent"] = rows["latent"] * 2
        if self.way == "no row":
            del rows["latent"]
        return None

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: Seen, params: Params) -> Seen:
        tensors: Any = outputs.tensors
        if self.way == "output":
            tensors["velocity"].mul_(2)
        if self.way == "one output more":
            tensors["more"] = tensors["velocity"]
        return state


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("row", "row latent"), ("view of a row", "row latent"), ("another row", "row latent"),
        ("no row", "row latent"), ("output", "output velocity"), ("one output more", "output more"),
    ],
)  # fmt: skip
def test_what_an_interceptor_is_given_it_must_leave_as_it_is(way: str, told: str) -> None:
    chain = Chain(enabled=[enabled(InPlace(way))])
    given = replace(call("cond"), rows={"latent": torch.ones(2)})

    def both() -> None:
        chain.answer(given, plan())
        chain.computed(given, plan(), output(1.0))

    with pytest.raises(RunError) as caught:
        both()
    assert caught.value.code == "FV508"
    assert f"interceptor toy/one: {told}: was changed" in caught.value.message


def test_what_stays_as_it_is_passes_tensors_without_versions_too() -> None:
    chain = Chain(enabled=[enabled(InPlace("none"))])
    with torch.inference_mode():
        given = replace(call("cond"), rows={"latent": torch.ones(2), "text": "a ball", "timestep": 3})
    assert chain.answer(given, plan()) is None
    chain.computed(given, plan(), output(1.0))


def answering(outputs: Any, computed: CallOutput | None) -> CallOutput | None:
    """What comes of an answer with these outputs, where `computed` was computed for such a call before."""

    class Answer(Plain):
        def before(self, call: ComponentCall, at: At, state: Seen, params: Params) -> CallOutput | None:
            return CallOutput(tensors=outputs)

    chain = Chain(enabled=[enabled(Answer())])
    if computed is not None:
        chain.computed(call("cond"), plan(0), computed)
    return chain.answer(call("cond"), plan(1))


COMPUTED = CallOutput(tensors={"velocity": torch.zeros(2, 3)})


@pytest.mark.parametrize(
    ("outputs", "value", "legal"),
    [
        ({"velocity": torch.zeros(3, 2)}, "float32 [3, 2] on cpu", "float32 [2, 3] on cpu"),
        ({"velocity": torch.zeros(2, 3, dtype=torch.float64)}, "float64 [2, 3] on cpu", "float32 [2, 3] on cpu"),
        ({"velocity": torch.zeros(2, 3, device="meta")}, "float32 [2, 3] on meta", "float32 [2, 3] on cpu"),
        ({"velocity": 3.0}, "a float", "float32 [2, 3] on cpu"),
        ({}, "no such output", "float32 [2, 3] on cpu"),
        ({"velocty": torch.zeros(2, 3)}, "no such output, but velocty", "float32 [2, 3] on cpu"),
        ({"velocity": torch.zeros(2, 3), "x0": torch.zeros(1)}, "float32 [1] on cpu", "no such output"),
    ],
)  # fmt: skip
def test_an_answer_is_like_what_was_computed(outputs: Any, value: str, legal: str) -> None:
    with pytest.raises(RunError) as caught:
        answering(outputs, COMPUTED)
    assert (caught.value.code, caught.value.value, caught.value.legal) == ("FV507", value, legal)
    assert "interceptor toy/one: output " in caught.value.message
    assert "of dit.velocity (cond, step 2)" in caught.value.message


def test_where_nothing_like_it_was_computed_an_answer_holds_tensors() -> None:
    assert answering({"velocity": torch.zeros(7)}, None) is not None
    assert answering({"velocity": torch.ones(2, 3)}, COMPUTED) is not None
    with pytest.raises(RunError) as caught:
        answering({"velocity": [1.0]}, None)
    assert (caught.value.code, caught.value.value, caught.value.legal) == ("FV507", "a list", "a tensor")


def test_only_calls_of_equal_structure_are_held_against_each_other() -> None:
    """A decoder's first frame comes alone, the others in groups."""

    class Answer(Plain):
        def before(self, call: ComponentCall, at: At, state: Seen, params: Params) -> CallOutput | None:
            return CallOutput(tensors={"velocity": torch.zeros(2, 3)}) if call.static.get("asks") else None

    def differing(**facts: Any) -> ComponentCall:
        return replace(call("cond"), **facts)

    chain = Chain(enabled=[enabled(Answer())])
    wide, asks = {"latent": torch.zeros(5)}, {"asks": True}
    chain.computed(differing(static=asks, rows=wide), plan(), output(0.0))
    for other in (
        differing(static=asks),
        differing(static={**asks, "first": True}, rows=wide),
        differing(static=asks, rows=wide, op="decode"),
        differing(static=asks, rows=wide, component="vae"),
    ):
        assert chain.answer(other, plan()) is not None
    with pytest.raises(RunError):
        chain.answer(differing(static=asks, rows=wide), plan())


def test_who_answered_is_known_for_the_step_alone() -> None:
    chain = Chain(enabled=[enabled(Repeat(), answers_from=1)])
    chain.computed(call("cond"), plan(0), output(1.0))
    chain.answer(call("cond"), plan(1))
    assert chain.answerer(call("cond"), plan(1)) == "toy/one"
    assert chain.answerer(call("uncond"), plan(1)) is None
    assert [chain.answerer(call("cond"), plan(step)) for step in (0, 2)] == [None, None]


def test_enabled_tells_id_and_parameters() -> None:
    assert str(enabled(Repeat(), answers_from=3)) == "toy/one:answers_from=3"


def test_state_type_is_read_off_the_declaration() -> None:
    assert Repeat.state_type() is Seen
    assert Broken.state_type() is Seen
    with pytest.raises(TypeError, match="Interceptor is not declared as"):
        Interceptor.state_type()
