"""The ladder: a sound card climbs it, and each kind of mistake is told on the rung that can tell it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fv_core import Engine, ModelCard, derive
from fv_core.card import ParitySpec, Rung
from fv_core.card.certificate import Verdict
from fv_core.errors import ParityError
from fv_core.parity.ladder import Measurement, measure, measure_against
from fv_core.parity.recording import Recording
from fv_core.parity.taps import record
from fv_core.runtime.records.probes import probes


def measured(card: ModelCard, rungs: Sequence[str] = ()) -> dict[Rung, Measurement]:
    with Engine([card], device="cpu") as engine:
        return {one.rung: one for one in measure(engine, card.model_id, rungs)}


def test_a_sound_card_passes_the_rungs_that_it_claims(by_hand: Any) -> None:
    found = measured(by_hand.CARD)
    assert list(found) == [Rung.COMPONENT, Rung.TRAJECTORY]
    for one in found.values():
        assert (one.verdict, one.first, len(one.requests)) == (Verdict.PASSED, None, 2)
        assert {figure.max_abs_diff for figure in one.figures} == {0.0}
    assert [figure.taps for figure in found[Rung.COMPONENT].figures] == [
        "encode/cond/embeds", "encode_negative/cond/embeds", "denoise/cond/velocity", "denoise/uncond/velocity",
        "decode/cond/latent", "decode/cond/frames",
    ]  # fmt: skip
    assert [(figure.taps, figure.compared) for figure in found[Rung.TRAJECTORY].figures] == [
        ("encode/embeds", 2), ("encode_negative/embeds", 1), ("denoise/latent", 12), ("decode/video", 2), ("video", 2),
    ]  # fmt: skip


def test_a_component_that_differs_is_told_on_both_rungs_at_its_step(by_hand: Any) -> None:
    found = measured(by_hand.claiming("other_velocity"))
    component, trajectory = found[Rung.COMPONENT].first, found[Rung.TRAJECTORY].first
    assert component is not None and trajectory is not None
    assert (component.tap, component.element) == (f"denoise/{by_hand.AT}/cond/velocity", (1, 0, 1, 0))
    assert math.isclose(component.max_abs_diff, 0.5, abs_tol=1e-6)
    assert (trajectory.tap, trajectory.step) == (f"denoise/{by_hand.AT}/latent", by_hand.AT)
    assert found[Rung.COMPONENT].verdict is found[Rung.TRAJECTORY].verdict is Verdict.FAILED


def test_a_solver_that_differs_leaves_the_components_alone(by_hand: Any) -> None:
    found = measured(by_hand.claiming("other_step"))
    assert found[Rung.COMPONENT].verdict is Verdict.PASSED
    first = found[Rung.TRAJECTORY].first
    assert first is not None
    assert first.tap == f"denoise/{by_hand.AT}/latent"


def test_the_claims_tolerance_decides(by_hand: Any) -> None:
    generous = measured(by_hand.claiming("other_velocity", tolerance=0.75), ["C0"])[Rung.COMPONENT]
    assert generous.verdict is Verdict.PASSED
    assert generous.tolerance == 0.75
    assert max(figure.max_abs_diff for figure in generous.figures) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("rung", ["C2", "C3", "C4", "C9"])
def test_rungs_that_nothing_measures_are_refused_by_name(rung: str, by_hand: Any) -> None:
    for card, asked in ((by_hand.CARD, [rung]), (by_hand.claiming("reference", rungs=("C1", rung)), [])):
        with Engine([by_hand.CARD], device="cpu") as engine:
            engine.instance(card.model_id).card = card  # a card that claims C9 is not even loaded
            with pytest.raises(ParityError, match=rung) as caught:
                measure(engine, card.model_id, asked)
        assert caught.value.code == "FV602"


@pytest.mark.parametrize(
    "claim", [None, ParitySpec(reference="torch.ByHand", reference_version="1", rungs=())]
)
def test_a_card_without_a_reference_to_run_is_refused(
    claim: ParitySpec | None, kit: Any, by_hand: Any
) -> None:
    with pytest.raises(ParityError) as caught:
        measured(derive(kit.GOOD, parity=claim))
    assert caught.value.code == "FV603"


def test_another_version_of_the_reference_is_refused(by_hand: Any) -> None:
    with pytest.raises(ParityError, match=r"'2\..*claims parity with \(legal: 0\.0\.1\)") as caught:
        measured(by_hand.claiming("reference", reference_version="0.0.1"))
    assert caught.value.code == "FV604"


def test_a_reference_that_raises_is_told(by_hand: Any) -> None:
    with pytest.raises(ParityError, match="raised ArithmeticError: no reference today") as caught:
        measured(by_hand.claiming("raising"))
    assert caught.value.code == "FV604"


def test_a_run_equals_its_own_recording(engine: Engine, tmp_path: Path) -> None:
    record(engine, probes(engine.instance("kit/good").card)[0]).save(tmp_path / "run")
    found = measure_against(engine, Recording.load(tmp_path / "run"))
    assert [(one.rung, one.verdict) for one in found] == [("C0", Verdict.PASSED), ("C1", Verdict.PASSED)]
    (only,) = measure_against(engine, Recording.load(tmp_path / "run"), ["C1"])
    assert only.rung is Rung.TRAJECTORY


def test_a_recording_with_another_number_parts_there(engine: Engine) -> None:
    recording = record(engine, probes(engine.instance("kit/good").card)[0])
    recording.taps["denoise/2/latent"][0, 0, 0, 0] += 1
    component, trajectory = measure_against(engine, recording)
    assert component.first is not None and trajectory.first is not None
    assert component.first.tap == "denoise/3/cond/velocity"
    assert (trajectory.first.tap, trajectory.first.element) == ("denoise/2/latent", (0, 0, 0, 0))
    assert math.isclose(trajectory.first.max_abs_diff, 1.0, rel_tol=1e-6)


def test_probes_are_legal_small_and_different(by_hand: Any) -> None:
    one, other = probes(by_hand.CARD)
    assert (one.size, one.frames, one.steps, one.guidance) == ((32, 16), 9, 6, 3.0)
    assert (other.frames, other.guidance, other.negative_prompt) == (5, 1.0, None)
    fixed = derive(by_hand.CARD, recipe={"steps": 4, "steps_fixed": True}, limits={"steps": (4, 4)})
    assert {probe.steps for probe in probes(fixed)} == {4}
    narrow = derive(by_hand.CARD, limits={"steps": (1, 2)})
    assert {probe.steps for probe in probes(narrow)} == {2}
