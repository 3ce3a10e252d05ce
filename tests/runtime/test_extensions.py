"""What an engine refuses to switch on for a card whose weights need every step."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fv_core import Engine, ModelCard, Request, derive
from fv_core.errors import CardError
from fv_core.extend import At, Interceptor, InterceptorSpec
from fv_core.loop import CallOutput, ComponentCall
from fv_core.plugins import find_card


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


def spec(name: str, kind: str = "flow_denoise") -> InterceptorSpec:
    return InterceptorSpec(
        id=f"test/{name}", loop_kinds=(kind,), distribution_altering=True,
        params=f"{__name__}:Params", factory=f"{__name__}:{name}",
    )  # fmt: skip


@pytest.fixture
def student() -> ModelCard:
    return derive(
        find_card("wan21/tiny"),
        model_id="wan21/student",
        recipe={"steps": 2, "steps_fixed": True},
        limits={"steps": (2, 2)},
    )


def test_step_skipping_is_refused_on_a_few_step_recipe(student: ModelCard) -> None:
    with pytest.raises(CardError) as caught:
        Engine([student], device="cpu", extensions=[spec("Skipping")])
    assert caught.value.code == "FV214"
    assert "test/Skipping" in caught.value.message
    assert "wan21/student" in caught.value.message


def test_it_is_refused_when_a_model_is_named_later_too(
    student: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fv_core.runtime.engine.find_card", lambda model_id: student)
    with Engine(device="cpu", extensions=[spec("Skipping")]) as engine, pytest.raises(CardError) as caught:
        engine.start(Request(prompt="a ball", model="wan21/student", numerics="fast"))  # type: ignore[arg-type]
    assert caught.value.code == "FV214"


def test_what_computes_every_step_is_welcome(student: ModelCard) -> None:
    Engine([student], device="cpu", extensions=[spec("Watching"), spec("Skipping", "vae_decode")]).close()


def test_a_many_step_recipe_may_be_skipped() -> None:
    Engine(["wan21/tiny"], device="cpu", extensions=[spec("Skipping")]).close()
