"""Measuring with the reference: every tap of every task is equal, in both precisions, and a fault is told apart."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from fv_core import Engine
from fv_core.card.certificate import Verdict
from fv_core.loop import chunk_rollout
from fv_core.parity.ladder import Measurement, measure
from fv_core.parity.reference import run_reference
from fv_core.request import Numerics
from fv_core.runtime.records.ledger import rung_standing
from fv_core.runtime.records.sources import SHIPPED
from fv_core.runtime.requests.resolve import settle
from fv_wan_causal import denoiser
from fv_wan_causal.card import CARDS, TINY
from fv_wan_causal.probes import probes


def measured(engine: Engine) -> dict[str, Measurement]:
    return {one.rung: one for one in measure(engine, TINY.model_id)}


def test_every_card_claims_what_is_measured() -> None:
    for card in CARDS:
        assert card.parity is not None
        assert (card.parity.runner, card.parity.rungs) == ("fv_wan_causal.reference:record", ("C0", "C1"))
        assert card.parity.transcribes.partition("@")[0] == "guandeh17/Self-Forcing"
        assert card.parity.tolerance == 0.0
        assert {request.task for request in probes(card)} == set(card.capabilities)


def test_the_tiny_card_equals_the_reference_on_both_rungs(engine: Engine) -> None:
    for one in measured(engine).values():
        assert one.first is None
        assert {figure.max_abs_diff for figure in one.figures} == {0.0}


def test_the_tiny_card_equals_the_reference_in_bfloat16(engine: Engine) -> None:
    with Engine([TINY], device="cpu", dtype="bfloat16") as half:
        assert [one.first for one in measured(half).values()] == [None, None]
        settled = settle(probes(TINY)[1], TINY, Numerics.REFERENCE).request
        videos = [run_reference(one.instance(TINY.model_id), settled, {})["video"] for one in (half, engine)]
    assert float((videos[0] - videos[1]).abs().max()) > 1e-3


def test_no_hook_stays_on_the_modules(engine: Engine) -> None:
    settled = settle(probes(TINY)[1], TINY, Numerics.REFERENCE).request
    instance = engine.instance(TINY.model_id)
    run_reference(instance, settled, {})
    for name in TINY.components:
        assert not any(part._forward_hooks for part in instance.component(name).module.modules())


def test_a_denoiser_that_ignores_the_past_fails_both_rungs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denoiser, "_joined", lambda past, own, sink, recent: own)
    found = measured(engine)
    assert {one.verdict for one in found.values()} == {Verdict.FAILED}
    assert found["C0"].first is not None
    assert found["C0"].first.tap == "rollout/6/cond/velocity"  # the second chunk's first


def test_renoising_gone_wrong_is_a_fault_of_the_trajectory_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = chunk_rollout._renoised

    def mixed_up(x0: Tensor, sigma: float, rng: Tensor) -> Any:
        return plain(x0, 1 - sigma, rng)

    monkeypatch.setattr(chunk_rollout, "_renoised", mixed_up)
    found = measured(engine)
    assert found["C0"].verdict is Verdict.PASSED
    assert found["C1"].first is not None
    assert found["C1"].first.tap == "rollout/1/latent"


def test_the_shipped_ledger_certifies_the_tiny_card_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path))
    found = [rung_standing(TINY, rung) for rung in ("C0", "C1")]
    assert [(one.rung, one.reasons) for one in found] == [("C0", ()), ("C1", ())]
    assert {str(one.path).partition(f"fv_wan_causal/{SHIPPED}")[1] for one in found} == {
        f"fv_wan_causal/{SHIPPED}"
    }
