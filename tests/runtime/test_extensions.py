"""What an engine refuses to switch on, and what it holds the enabled interceptors to while requests run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Engine, ModelCard, Request, derive
from fv_core.errors import CardError, PluginError, RequestError
from fv_core.extend import At, Interceptor, InterceptorSpec
from fv_core.loop import CallOutput, ComponentCall
from fv_core.plugins import find_card
from fv_core.request import Numerics


@dataclass(frozen=True, kw_only=True)
class Params:
    """There are none."""


@dataclass(frozen=True, kw_only=True)
class State:
    """There is none."""


class Skipping(Interceptor[Params, State]):
    """May answer a step."""

    def initial(self, params: Params) -> State:
        return State()

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        return None


class Watching(Interceptor[Params, State]):
    """Computes every step."""

    def initial(self, params: Params) -> State:
        return State()


@dataclass(frozen=True, kw_only=True)
class Strength:
    """Parameters, of which one has a range."""

    strength: float = 0.5
    keep_first: int = 2

    def __post_init__(self) -> None:
        if self.strength < 0:
            raise ValueError(f"strength {self.strength} is below 0")


@dataclass(frozen=True, kw_only=True)
class Required:
    """One that nobody can leave out."""

    strength: float


@dataclass(frozen=True, kw_only=True)
class Last:
    """What was computed last."""

    velocity: Tensor | None = None


class Answering(Interceptor[Params, Last]):
    """Repeats what was computed last in the shape and with the values that `spoiled` leaves."""

    def initial(self, params: Params) -> Last:
        return Last()

    def before(self, call: ComponentCall, at: At, state: Last, params: Params) -> CallOutput | None:
        if at.step == 0 or state.velocity is None:
            return None
        return CallOutput(tensors={"velocity": self.spoiled(state.velocity)})

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: Last, params: Params) -> Last:
        return Last(velocity=outputs.tensors["velocity"])

    def spoiled(self, velocity: Tensor) -> Tensor:
        return velocity


class Halves(Answering):
    def spoiled(self, velocity: Tensor) -> Tensor:
        return velocity[:8]


class Infinite(Answering):
    def spoiled(self, velocity: Tensor) -> Tensor:
        return velocity / 0


class InPlace(Answering):
    def before(self, call: ComponentCall, at: At, state: Last, params: Params) -> CallOutput | None:
        latent = call.rows["latent"]
        assert isinstance(latent, Tensor)
        latent.clamp_(-1, 1)
        return None


class Raising(Skipping):
    def __init__(self) -> None:
        raise KeyError("lost")


class Undeclared(Interceptor):  # type: ignore[type-arg]
    """Of no state type."""


def spec(
    name: str, kind: str = "flow_denoise", params: str = "Params", altering: bool = True
) -> InterceptorSpec:
    return InterceptorSpec(
        id=f"test/{name.lower()}", loop_kinds=(kind,), distribution_altering=altering,
        params=f"{__name__}:{params}", factory=f"{__name__}:{name}",
    )  # fmt: skip


@pytest.fixture
def student() -> ModelCard:
    return derive(
        find_card("wan21/micro"),
        model_id="wan21/student",
        recipe={"steps": 2, "steps_fixed": True},
        limits={"steps": (2, 2)},
    )


def test_step_skipping_is_refused_on_a_few_step_recipe(student: ModelCard) -> None:
    with pytest.raises(CardError) as caught:
        Engine([student], device="cpu", extensions=[spec("Skipping")])
    assert caught.value.code == "FV214"
    assert "test/skipping" in caught.value.message
    assert "wan21/student" in caught.value.message


def test_it_is_refused_when_a_model_is_named_later_too(
    student: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fv_core.runtime.intake.find_card", lambda model_id: student)
    with Engine(device="cpu", extensions=[spec("Skipping")]) as engine, pytest.raises(CardError) as caught:
        engine.start(Request(prompt="a ball", model="wan21/student", numerics="fast"))  # type: ignore[arg-type]
    assert caught.value.code == "FV214"


def test_what_computes_every_step_is_welcome(student: ModelCard) -> None:
    Engine([student], device="cpu", extensions=[spec("Watching"), spec("Skipping", "vae_decode")]).close()


def test_a_many_step_recipe_may_be_skipped() -> None:
    Engine(["wan21/micro"], device="cpu", extensions=[spec("Skipping")]).close()


def test_bits_are_promised_only_without_what_alters_them(ask: Callable[..., Request]) -> None:
    with Engine(
        ["wan21/micro"], device="cpu", extensions=[spec("Answering"), spec("Watching", altering=False)]
    ) as engine:
        for numerics in (Numerics.REFERENCE, Numerics.EXACT):
            with pytest.raises(RequestError) as caught:
                engine.start(ask(numerics=numerics))
            assert (caught.value.code, caught.value.legal) == ("FV314", "fast")
            assert "test/answering alters" in caught.value.message
        engine.start(ask(numerics=Numerics.FAST)).close()


def test_one_named_twice_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        Engine(
            ["wan21/micro"], device="cpu", extensions=[spec("Watching"), spec("Skipping"), spec("Watching")]
        )
    assert (caught.value.code, caught.value.value) == ("FV316", "test/watching")


def test_one_alone_needs_no_list() -> None:
    with Engine(["wan21/micro"], device="cpu", extensions=spec("Watching")):
        pass
    with pytest.raises(PluginError) as caught:
        Engine(["wan21/micro"], device="cpu", extensions="test/watching")
    assert (caught.value.code, caught.value.value) == ("FV107", "test/watching")


@pytest.mark.parametrize("named", [3, ("test/watching", 3), ("a", {}, {}), {"strength": 1}])
def test_what_names_no_interceptor_is_refused(named: Any) -> None:
    with pytest.raises(RequestError) as caught:
        Engine(["wan21/micro"], device="cpu", extensions=[named])
    assert (caught.value.code, caught.value.value) == ("FV316", named)


LEGAL = "strength: float = 0.5, keep_first: int = 2"


@pytest.mark.parametrize(
    ("given", "name", "words"),
    [
        ({"strenght": 1.0}, "parameter strenght", "is not one that there is"),
        ({"strength": "much"}, "parameter strength", "expected float"),
        ({"keep_first": 2.5}, "parameter keep_first", "expected int"),
        ({"keep_first": True}, "parameter keep_first", "expected int"),
        ({"strength": torch.ones(1)}, "parameter strength", "Tensor has no JSON form"),
        ({"strength": -1.0}, "parameters", "strength -1.0 is below 0"),
    ],
)
def test_wrong_parameters_are_refused_with_those_that_are_declared(given: Any, name: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        Engine(["wan21/micro"], device="cpu", extensions=[(spec("Watching", params="Strength"), given)])
    assert (caught.value.code, caught.value.legal) == ("FV318", LEGAL)
    assert caught.value.name == f"interceptor test/watching: {name}"
    assert words in caught.value.rule


def test_an_interceptor_without_parameters_says_so() -> None:
    with pytest.raises(RequestError) as caught:
        Engine(["wan21/micro"], device="cpu", extensions=[(spec("Watching"), {"strength": 0.5})])
    assert (caught.value.code, caught.value.legal) == ("FV318", "none")


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("Watching", "Required", "no legal defaults"),
        ("Watching", "LEGAL", "not a dataclass"),
        ("Watching", "Watching", "not a dataclass"),
        ("LEGAL", "Params", "not a class of interceptors"),
        ("Params", "Params", "not a class of interceptors"),
        ("Raising", "Params", "KeyError: 'lost'"),
        ("Undeclared", "Params", "not declared as"),
    ],
)
def test_what_is_not_as_its_record_says_is_the_plugins_fault(name: str, params: str, words: str) -> None:
    with pytest.raises(PluginError) as caught:
        Engine(["wan21/micro"], device="cpu", extensions=[spec(name, params=params)])
    assert caught.value.code == "FV104"
    assert f"interceptor test/{name.lower()}" in caught.value.message
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("Halves", "FV507", "output velocity of transformer.velocity (cond, step 2) 'float32 [8, 2, 2, 2] on cpu'"),
        ("Infinite", "FV501", "velocity of transformer.velocity (cond, step 2), answered by interceptor test/infinite"),
        ("InPlace", "FV508", "interceptor test/inplace: row latent"),
    ],
)  # fmt: skip
def test_a_request_ends_where_its_interceptor_answers_wrongly_and_others_go_on(
    name: str, code: str, words: str, ask: Callable[..., Request]
) -> None:
    with Engine(["wan21/micro"], device="cpu", extensions=[spec(name, altering=False)]) as engine:
        long, short = engine.run_many([ask(steps=3), ask(steps=1)])
        assert long.error is not None
        assert long.error.code == code
        assert words in long.error.message
        assert short.ok is (name != "InPlace")
        assert engine.counters().requests == 0


def test_answers_that_fit_pass(ask: Callable[..., Request]) -> None:
    with Engine(["wan21/micro"], device="cpu", extensions=[spec("Answering", altering=False)]) as engine:
        assert engine.run(ask(steps=3)).used.extensions == ("test/answering",)
