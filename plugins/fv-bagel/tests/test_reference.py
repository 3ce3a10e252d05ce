"""The runner of the reference: equal to fv on every task, to the recordings, and not to a changed fv."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fv_bagel
from fv_bagel import components, denoise
from fv_bagel.card import CARDS, TINY
from fv_bagel.grid import pack
from fv_bagel.guidance import guided
from fv_bagel.mot import Route
from fv_core import Engine, Request
from fv_core.card.certificate import Verdict
from fv_core.parity.ladder import measure
from fv_core.parity.recording import Recording
from fv_core.parity.reference import run_reference
from fv_core.parity.taps import record
from fv_core.request import Numerics, TaskType
from fv_core.runtime.records.ledger import rung_standing
from fv_core.runtime.records.probes import probes
from fv_core.runtime.records.sources import SHIPPED
from fv_core.runtime.requests.resolve import settle

Difference = Callable[[Tensor, Tensor], float]


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine([TINY], device="cpu", weights=folder) as made:
        yield made


def theirs(engine: Engine, request: Request) -> Mapping[str, Tensor]:
    settled = settle(replace(request, model=TINY.model_id), TINY, Numerics.REFERENCE)
    inputs = {slot: torch.from_numpy(value) for slot, value in settled.inputs.contents.items()}
    return run_reference(engine.instance(TINY.model_id), settled.request, inputs)


def mine(engine: Engine, request: Request) -> Recording:
    return record(engine, replace(request, model=TINY.model_id))


def test_every_card_claims_what_is_measured() -> None:
    for card in CARDS:
        assert card.parity is not None
        assert (card.parity.runner, card.parity.rungs) == ("fv_bagel.reference:record", ("C0", "C1"))
        assert card.parity.tolerance == 0.0
        assert card.parity.transcribes.startswith("ByteDance-Seed/Bagel@056b5fd5")


def test_probes_reach_every_task_and_a_thought() -> None:
    asked = probes(TINY)
    assert {request.task for request in asked} == {TaskType.T2I, TaskType.EDIT, TaskType.QA}
    assert any(request.params.get("think") for request in asked)


def test_the_tiny_card_equals_the_reference_on_both_rungs(engine: Engine) -> None:
    for one in measure(engine, TINY.model_id):
        assert one.first is None
        assert one.verdict is Verdict.PASSED
        assert {figure.max_abs_diff for figure in one.figures} == {0.0}


def requests() -> dict[str, dict[str, Any]]:
    base: dict[str, Any] = {"task": TaskType.T2I, "size": (32, 48), "steps": 3, "seed": 5}
    edit: dict[str, Any] = {"task": TaskType.EDIT, "steps": 3, "seed": 5}
    return {
        "channel": {**base, "params": {"renorm": "channel", "renorm_min": 0.6}},
        "text_channel": {**base, "params": {"renorm": "text_channel", "shift": 1.0, "interval_high": 0.9}},
        "no image guidance": {**base, "params": {"image_guidance": 1.0}},
        "no guidance": {**base, "guidance": 1.0},
        "thought, sampled": {**base, "params": {"think": True, "temperature": 0.9, "max_tokens": 5}},
        "edit, thought": {**edit, "params": {"think": True, "max_tokens": 4, "renorm": "global"}},
        "edit, one step": {**edit, "steps": 1},
        "question alone": {"task": TaskType.QA, "seed": 5, "params": {"max_tokens": 6, "temperature": 1.3}},
        "question, thought": {"task": TaskType.QA, "seed": 5, "params": {"think": True, "max_tokens": 6}},
    }


@pytest.mark.parametrize("name", list(requests()))
def test_requests_of_every_kind_equal_the_reference(
    name: str, engine: Engine, goldens: Any, part_of: Callable[[Tensor], Any], difference: Difference
) -> None:
    facts = requests()[name]
    image = part_of(goldens.first["input.image_112_u8"][:48, :64])
    given = (image,) if facts["task"] is TaskType.EDIT or name == "question, thought" else ()
    request = Request(prompt="a cat walks on the grass", inputs=given, **facts)
    ours, reference = mine(engine, request).taps, theirs(engine, request)
    assert list(reference) == list(ours)
    for tap, tensor in reference.items():
        if tensor.numel() or ours[tap].numel():
            assert difference(ours[tap], tensor) == 0.0, tap


@pytest.mark.parametrize("case", ["t2i_global", "t2i_channel", "think"])
def test_the_reference_equals_the_recordings_by_itself(
    case: str, engine: Engine, goldens: Any, difference: Difference, tolerance: float, request_of: Any
) -> None:
    request = request_of(case)
    latent = theirs(engine, request)[f"denoise/{request.steps - 1}/latent"]
    assert difference(pack(latent[:, 0], 2), goldens.rerun[f"{case}.latent"]) <= tolerance


@pytest.fixture
def request_of(goldens: Any, mine: Any) -> Any:
    return mine.request


def measured(engine: Engine) -> dict[str, Any]:
    return {one.rung: one for one in measure(engine, TINY.model_id)}


def test_swapped_guidance_is_a_fault_of_the_trajectory(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denoise, "guided", lambda v, u, i, **more: guided(u, v, i, **more))
    found = measured(engine)
    assert found["C1"].first is not None
    assert found["C1"].first.tap == "denoise/0/latent"


def test_another_expert_is_a_fault_of_the_mixture(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(length: int, device: torch.device) -> Any:
        rows = torch.arange(length, device=device)
        return Route(understanding=rows, generation=rows[:0])

    monkeypatch.setattr(components, "route", everything)
    first = measured(engine)["C0"].first
    assert first is not None
    assert first.tap == "denoise/0/context/velocity"


def test_the_version_of_the_reference_is_the_plugins() -> None:
    project = Path(fv_bagel.__file__).parents[1] / "pyproject.toml"
    for card in CARDS:
        assert card.parity is not None
        assert f'version = "{card.parity.reference_version}"' in project.read_text()


def test_the_shipped_ledger_certifies_the_tiny_card_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path))
    found = [rung_standing(TINY, rung) for rung in ("C0", "C1")]
    assert [(one.rung, one.reasons) for one in found] == [("C0", ()), ("C1", ())]
    assert {str(one.path).partition(f"fv_bagel/{SHIPPED}")[1] for one in found} == {f"fv_bagel/{SHIPPED}"}
