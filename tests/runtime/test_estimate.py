"""Predictions of memory: a card's own function for it is trusted with nothing but a number."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from fv_core import Engine, ModelCard, Request, derive
from fv_core.card import Geometry
from fv_core.errors import PluginError
from fv_core.plugins import all_cards, find_card
from fv_core.runtime.estimate import check_predictions
from fv_core.runtime.job import Job

ANSWERS: dict[str, Any] = {
    "a string": "much", "below zero": -5, "endless": math.inf, "not a number": math.nan, "nothing": None, "yes": True,
}  # fmt: skip
answer: Any = None


def divides(geometry: Geometry, config: Any, dtype_bytes: int) -> int:
    return 1 // 0


def takes_one(geometry: Geometry) -> int:
    return 1


def answers(geometry: Geometry, config: Any, dtype_bytes: int) -> Any:
    return answer


def card_with(function: str) -> ModelCard:
    card = find_card("wan21/micro")
    vae = replace(card.components["vae"], activation=function)
    return derive(card, model_id="wan21/predicted", components={**card.components, "vae": vae})


def refusal(function: str) -> PluginError:
    with Engine([card_with(function)], device="cpu") as engine, pytest.raises(PluginError) as caught:
        engine.plan(Request(prompt="a red circle"))
    return caught.value


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("divides", "raised ZeroDivisionError"),
        ("takes_one", "raised TypeError"),
        ("absent", "does not resolve"),
    ],
)
def test_a_function_that_fails_is_told_with_card_component_and_reference(function: str, told: str) -> None:
    error = refusal(f"{__name__}:{function}")
    assert error.code == ("FV105" if function == "absent" else "FV122")
    assert error.name.startswith("wan21/predicted component vae: ")
    assert error.value == f"{__name__}:{function}"
    assert told in error.rule


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_that_is_no_number_of_bytes_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "answer", ANSWERS[kind])
    error = refusal(f"{__name__}:answers")
    assert (error.code, error.rule) == ("FV122", f"returned {ANSWERS[kind]!r}")
    with pytest.raises(PluginError):
        check_predictions(card_with(f"{__name__}:answers"))


CACHES: dict[str, Any] = {
    "no bytes": {"stream": -1}, "of no class": {"heap": 1}, "a number": 5, "no number": {"stream": "much"},
}  # fmt: skip


@pytest.mark.parametrize("kind", CACHES)
def test_caches_that_are_no_bytes_of_a_class_are_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "answer", CACHES[kind])
    card = derive(find_card("wan21/micro"), model_id="wan21/predicted", caches=f"{__name__}:answers")
    with Engine([card], device="cpu") as engine, pytest.raises(PluginError) as caught:
        engine.plan(Request(prompt="a red circle"))
    assert (caught.value.code, caught.value.name) == ("FV122", "wan21/predicted: caches")
    with pytest.raises(PluginError):
        check_predictions(card)


def test_neighbours_of_a_request_that_cannot_be_predicted_go_on() -> None:
    cards: list[str | ModelCard] = ["wan21/micro", card_with(f"{__name__}:divides")]
    with Engine(cards, device="cpu") as engine:
        asked = Request(prompt="a red circle", size=(16, 16), frames=1, steps=1, seed=1)
        good, bad = engine.run_many([asked, replace(asked, model="wan21/predicted")])
    assert good.clip is not None
    assert bad.error is not None
    assert bad.error.code == "FV122"


@pytest.mark.parametrize("stage", ["start", "clip"])
def test_neighbours_of_a_request_that_fails_unforeseen_go_on(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(["wan21/micro"], device="cpu") as engine:
        original = getattr(engine, stage)

        def failing(subject: Request | Job, **options: Any) -> Any:
            request = subject if isinstance(subject, Request) else subject.run.request
            if request.seed == 2:
                raise LookupError("lost")
            return original(subject, **options)

        monkeypatch.setattr(engine, stage, failing)
        asked = Request(prompt="a red circle", size=(16, 16), frames=1, steps=1, seed=1)
        good, bad = engine.run_many([asked, replace(asked, seed=2)])
        assert good.clip is not None
        assert bad.error is not None
        assert bad.error.code == "FV599"
        assert "LookupError: lost" in bad.error.message
        assert engine.counters().requests == 0


def test_every_installed_card_can_be_predicted() -> None:
    for card in all_cards():
        check_predictions(card)


def test_what_is_not_stated_is_not_counted_as_nothing() -> None:
    with Engine([card_with("")], device="cpu") as engine:
        plan = engine.plan(Request(prompt="a red circle"))
    assert "vae" in plan.weights
    assert "vae" not in plan.activations


def test_nodes_that_a_stream_joins_hold_their_memory_side_by_side() -> None:
    card = find_card("wan-causal/sf-1.3b")
    with Engine([card], device="cpu", dtype="float32") as engine:
        plan = engine.plan(Request(prompt="x", model=card.model_id))
    together = plan.activations["transformer"] + plan.activations["vae"]
    assert plan.peak_bytes == sum(plan.weights.values()) + max(together, plan.activations["text"])
    assert plan.peak_bytes_offloaded >= plan.weights["transformer"] + together
