"""The runner of the reference tells the pipeline's own tensors, and measuring with it sees each kind of mistake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core import Engine
from fv_core.card.certificate import Verdict
from fv_core.loop import flow_denoise
from fv_core.loop.policies.guidance import combine
from fv_core.loop.samplers import unipc
from fv_core.parity.ladder import Measurement, measure
from fv_core.parity.reference import run_reference
from fv_core.parity.taps import record
from fv_core.request import Numerics
from fv_core.runtime.records.ledger import rung_standing
from fv_core.runtime.records.probes import probes
from fv_core.runtime.records.sources import SHIPPED
from fv_core.runtime.requests.resolve import resolve
from fv_wan21 import components
from fv_wan21.card import CARDS, MICRO


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine([MICRO], device="cpu") as made:
        yield made


def measured(engine: Engine) -> dict[str, Measurement]:
    return {one.rung: one for one in measure(engine, MICRO.model_id)}


def test_every_card_claims_what_is_measured() -> None:
    for card in CARDS:
        assert card.parity is not None
        assert (card.parity.runner, card.parity.rungs) == ("fv_wan21.reference:record", ("C0", "C1"))
        assert card.parity.tolerance == 0.0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_tiny_card_equals_the_pipeline_on_both_rungs(dtype: str) -> None:
    with Engine([MICRO], device="cpu", dtype=dtype) as engine:
        for one in measured(engine).values():
            assert one.first is None
            assert {figure.max_abs_diff for figure in one.figures} == {0.0}


def test_taps_are_those_of_fv_in_the_same_order(engine: Engine) -> None:
    for probe in probes(MICRO):
        mine = record(engine, probe)
        theirs = run_reference(engine.instance(MICRO.model_id), mine.facts.request, {})
        assert list(theirs) == list(mine.taps)
        assert len({tensor.data_ptr() for tensor in theirs.values()}) == len(theirs)


def test_the_reference_runs_the_request_as_settled(engine: Engine) -> None:
    settled = resolve(probes(MICRO)[0], MICRO, Numerics.REFERENCE)
    instance = engine.instance(MICRO.model_id)
    first = run_reference(instance, settled, {})["video"]
    changes: tuple[dict[str, Any], ...] = (
        {"seed": 8},
        {"guidance": 2.0},
        {"params": {"shift": 8.0}},
        {"negative_prompt": "red"},
    )
    for change in changes:
        other = run_reference(instance, replace(settled, **change), {})["video"]
        assert not torch.equal(first, other), change


def test_no_hook_stays_on_the_modules(engine: Engine) -> None:
    instance = engine.instance(MICRO.model_id)
    settled = resolve(probes(MICRO)[1], MICRO, Numerics.REFERENCE)
    run_reference(instance, settled, {})
    for name in MICRO.components:
        for part in instance.component(name).module.modules():
            assert not part._forward_hooks


def test_mixed_up_guidance_is_a_fault_of_the_trajectory_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_denoise, "combine", lambda cond, uncond, scale: combine(uncond, cond, scale))
    found = measured(engine)
    assert found["C0"].verdict is Verdict.PASSED
    assert found["C1"].first is not None
    assert found["C1"].first.tap == "denoise/0/latent"


def test_a_solver_without_its_corrector_parts_after_the_first_step(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unipc, "_correct", lambda state, sample, x0, step: sample)
    first = measured(engine)["C1"].first
    assert first is not None
    assert (first.tap, first.step) == ("denoise/1/latent", 1)


def test_padding_that_is_not_zeroed_is_a_fault_of_the_text_encoder(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(components, "_without_padding", lambda embeds, mask: embeds)
    first = measured(engine)["C0"].first
    assert first is not None
    assert (first.tap, first.reason) == ("encode/0/cond/embeds", "values")


def test_latents_denormalised_in_another_form_are_a_fault_of_the_decoder(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(components, "_denormalised", lambda latent, mean, std: latent * std + mean)
    first = measured(engine)["C0"].first
    assert first is not None
    assert first.tap == "decode/0/cond/latent"
    assert 0 < first.max_abs_diff < 1e-4


def test_the_shipped_ledger_certifies_the_tiny_card_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path))
    found = [rung_standing(MICRO, rung) for rung in ("C0", "C1")]
    assert [(one.rung, one.reasons) for one in found] == [("C0", ()), ("C1", ())]
    assert {str(one.path).partition(f"fv_wan21/{SHIPPED}")[1] for one in found} == {f"fv_wan21/{SHIPPED}"}
