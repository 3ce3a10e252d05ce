"""The runner of the reference tells the pipeline's own tensors in every task, and measuring sees mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core import Engine
from fv_core.card.certificate import Verdict
from fv_core.loop.policies.guidance import combine
from fv_core.parity import ladder
from fv_core.parity.ladder import Measurement, measure
from fv_core.request import TaskType
from fv_core.runtime.records.ledger import rung_standing
from fv_core.runtime.records.probes import probes
from fv_core.runtime.records.sources import SHIPPED
from fv_cosmos3 import denoise, transformer
from fv_cosmos3.card import CARDS, TINY
from fv_cosmos3.pathways import Text, understand


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine([TINY], device="cpu") as made:
        yield made


def measured(engine: Engine) -> dict[str, Measurement]:
    return {one.rung: one for one in measure(engine, TINY.model_id)}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two probes alone: a guided clip and one without guidance."""
    monkeypatch.setattr(ladder, "probes", lambda card: probes(card)[:2])


def test_every_card_claims_what_is_measured() -> None:
    for card in CARDS:
        assert card.parity is not None
        assert (card.parity.runner, card.parity.rungs) == ("fv_cosmos3.reference:record", ("C0", "C1"))
        assert card.parity.tolerance == 0.0


def test_probes_cover_every_task_and_both_branches() -> None:
    asked = probes(TINY)
    assert {request.task for request in asked} == set(TINY.programs)
    assert {name for request in asked for name in request.params} == {"audio", "think"}


def test_every_task_of_the_tiny_card_equals_the_reference_on_both_rungs(engine: Engine) -> None:
    """And no hook of the runner stays on the modules."""
    for one in measured(engine).values():
        assert one.first is None
        assert {figure.max_abs_diff for figure in one.figures} == {0.0}
        assert {request.task for request in one.requests} == set(TaskType) - {TaskType.EDIT}
    for name in TINY.components:
        for part in engine.instance(TINY.model_id).component(name).module.modules():
            assert not part._forward_hooks


@pytest.mark.usefixtures("quick")
def test_bfloat16_transformer_equals_the_pipeline() -> None:
    with Engine([TINY], device="cpu", dtype="bfloat16") as engine:
        module: Any = engine.instance(TINY.model_id).component("transformer").module
        assert module.dtype is torch.bfloat16
        assert next(module.time_embedder.parameters()).dtype is torch.float32
        assert {one.verdict for one in measured(engine).values()} == {Verdict.PASSED}


@pytest.mark.usefixtures("quick")
def test_mixed_up_guidance_is_a_fault_of_the_trajectory_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denoise, "combine", lambda cond, uncond, scale: combine(uncond, cond, scale))
    found = measured(engine)
    assert found["C0"].verdict is Verdict.PASSED
    assert found["C1"].first is not None
    assert found["C1"].first.tap == "denoise/0/latent"


@pytest.mark.usefixtures("quick")
def test_keys_and_values_of_another_text_are_a_fault_of_the_transformer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(module: Any, texts: list[Text], least: int) -> Any:
        return understand(module, [replace(text, tokens=text.tokens.flip(0)) for text in texts], least)

    monkeypatch.setattr(transformer, "understand", stale)
    first = measured(engine)["C0"].first
    assert first is not None
    assert first.tap == "denoise/0/cond/video"


def test_the_shipped_ledger_certifies_the_tiny_card_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path))
    found = [rung_standing(TINY, rung) for rung in ("C0", "C1")]
    assert [(one.rung, one.reasons) for one in found] == [("C0", ()), ("C1", ())]
    assert {str(one.path).partition(f"fv_cosmos3/{SHIPPED}")[1] for one in found} == {f"fv_cosmos3/{SHIPPED}"}
