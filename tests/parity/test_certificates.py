"""Certificates: what was certified stands, and whatever is changed after it is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core import Engine, ModelCard, Request, derive
from fv_core.card.certificate import Certificate, Figure, Verdict, edits, sealed, verdict_of
from fv_core.errors import ParityError
from fv_core.parity.certificates import certify, write
from fv_core.runtime.records.certified import require_certified, standings_here, weights_hash
from fv_core.runtime.records.ledger import entries, own_ledger, rung_standing

SMALL = Request(prompt="a ball", model="kit/good", seed=1, size=(16, 16), frames=1, steps=1)


@pytest.fixture
def certificates(engine: Engine) -> tuple[Certificate, ...]:
    """Of both rungs, and written to this machine's ledger."""
    made = certify(engine, "kit/good")
    for one in made:
        write(one, own_ledger())
    return made


def reasons(engine: Engine, rung: str = "C1") -> str:
    (standing,) = [one for one in standings_here(engine.instance("kit/good")) if one.rung == rung]
    assert standing.certified is (not standing.reasons)
    return "; ".join(standing.reasons)


def rewritten(certificates: tuple[Certificate, ...], **facts: Any) -> None:
    """The C1 certificate with facts edited, and sealed anew as only its author could."""
    write(sealed(replace(certificates[1], **facts)), own_ledger())


def test_what_was_certified_stands(engine: Engine, certificates: tuple[Certificate, ...]) -> None:
    assert [one.rung for one in certificates] == ["C0", "C1"]
    assert {one.verdict for one in certificates} == {Verdict.PASSED}
    assert (reasons(engine, "C0"), reasons(engine)) == ("", "")
    require_certified(engine.instance("kit/good"))


def test_a_certificate_survives_its_file(certificates: tuple[Certificate, ...]) -> None:
    for one in certificates:
        assert Certificate.from_json(one.to_json()) == one
        assert sealed(one) == one


def test_nothing_is_certified_before(engine: Engine) -> None:
    assert reasons(engine) == "there is no certificate of it"


def test_a_rung_that_failed_is_not_certified(by_hand: Any) -> None:
    with Engine([by_hand.claiming("other_step")], device="cpu") as engine:
        made = certify(engine, "kit/good")
        assert [one.verdict for one in made] == [Verdict.PASSED, Verdict.FAILED]
        for one in made:
            write(one, own_ledger())
        assert reasons(engine, "C0") == ""
        assert "verdict: failed" in reasons(engine, "C1")


def edited_limits(card: ModelCard) -> ModelCard:
    return derive(card, defaults={"fps": 9.0})


def test_an_edited_card_is_uncertified(
    engine: Engine, certificates: tuple[Certificate, ...], by_hand: Any
) -> None:
    with Engine([edited_limits(by_hand.CARD)], device="cpu") as other:
        assert f"card: {by_hand.CARD.digest()} was certified" in reasons(other)
        with pytest.raises(ParityError) as caught:
            require_certified(other.instance("kit/good"))
    assert caught.value.code == "FV601"


def test_other_weights_are_told(engine: Engine, certificates: tuple[Certificate, ...]) -> None:
    module = engine.instance("kit/good").component("denoiser").module
    before = weights_hash(engine.instance("kit/good"))
    with torch.no_grad():
        next(iter(module.parameters())).view(-1)[0] += 1
    assert weights_hash(engine.instance("kit/good")) != before
    assert reasons(engine).startswith("kit-good.C1.")
    assert f"weights: {before} were certified" in reasons(engine)


def test_parameters_of_other_names_or_types_are_other_weights(engine: Engine) -> None:
    instance = engine.instance("kit/good")
    hashes = {weights_hash(instance)}
    module: Any = instance.component("text").module
    module.double()
    hashes.add(weights_hash(instance))
    module.float()
    module.renamed = module.weight
    del module.weight
    hashes.add(weights_hash(instance))
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"plugin": "fv-kit 0.9"}, "plugin version: fv-kit 0.9 was certified, this is none"),
        ({"reference_version": "0.1"}, "reference version: 0.1 was certified"),
        ({"reference": "torch.Other"}, "reference: torch.Other was certified"),
        ({"dtype": "bfloat16"}, "precision: bfloat16 was certified, this is float32"),
        ({"tolerance": 0.5}, "tolerance: 0.5 was allowed, the card allows 0"),
        ({"model": "kit/other"}, "model: kit/other was certified"),
        ({"verdict": Verdict.FAILED}, "the verdict failed does not follow from the figures"),
    ],
)
def test_a_certificate_of_something_else_is_told(
    facts: dict[str, Any], told: str, engine: Engine, certificates: tuple[Certificate, ...]
) -> None:
    for entry in entries(engine.instance("kit/good").card):
        entry.path.unlink()
    rewritten(certificates, **facts)
    if "model" in facts:
        (file,) = own_ledger().iterdir()
        file.rename(file.with_name("kit-good.C1.0.json"))
    assert told in reasons(engine)


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        ({"threads": 64}, "environment: threads 64 then, 1 now"),
        ({"device": "cuda"}, "environment: device cuda then, cpu now"),
        ({"versions": {"torch": "1.0"}}, "environment: torch 1.0 then"),
    ],
)
def test_another_environment_is_told(
    fact: dict[str, Any], told: str, engine: Engine, certificates: tuple[Certificate, ...]
) -> None:
    for path in own_ledger().glob("*.C1.*"):
        path.unlink()
    rewritten(certificates, environment=replace(certificates[1].environment, **fact))
    assert told in reasons(engine)
    assert rung_standing(
        engine.instance("kit/good").card, "C1"
    ).certified  # as far as it shows without the machine


def zero_figures(facts: dict[str, Any]) -> None:
    facts["figures"][0]["max_abs_diff"] = 1e-9


def other_weights(facts: dict[str, Any]) -> None:
    facts["weights"] = "0" * 64


def other_version(facts: dict[str, Any]) -> None:
    facts["plugin"] = "fv-kit 0.9"


def other_digest(facts: dict[str, Any]) -> None:
    facts["card_digest"] = "0" * 64


def other_verdict(facts: dict[str, Any]) -> None:
    facts["verdict"] = "failed"


def other_threads(facts: dict[str, Any]) -> None:
    facts["environment"]["threads"] = 3


def other_request(facts: dict[str, Any]) -> None:
    facts["requests"][0]["steps"] = 50


def other_default(facts: dict[str, Any]) -> None:
    facts["requests"][0]["adjusted"] = ["a note"]


def added_part(facts: dict[str, Any]) -> None:
    facts["parts"]["later"] = "0" * 64


def dropped_part(facts: dict[str, Any]) -> None:
    del facts["parts"]["figures"]


def other_seal(facts: dict[str, Any]) -> None:
    facts["seal"] = "0" * 64


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (zero_figures, "figures was edited after sealing"),
        (other_weights, "weights was edited after sealing"),
        (other_version, "plugin was edited after sealing"),
        (other_digest, "card_digest was edited after sealing"),
        (other_verdict, "verdict was edited after sealing"),
        (other_threads, "environment was edited after sealing"),
        (other_request, "requests was edited after sealing"),
        (other_default, "requests was edited after sealing"),
        (added_part, "later was edited after sealing"),
        (dropped_part, "figures was edited after sealing"),
        (other_seal, "the seal is broken"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_edited_file_is_told_with_the_part_that_was_edited(
    edit: Callable[[dict[str, Any]], None], told: str, engine: Engine, certificates: tuple[Certificate, ...]
) -> None:
    (file,) = own_ledger().glob("kit-good.C1.*")
    facts = json.loads(file.read_text())
    edit(facts)
    file.write_text(json.dumps(facts))
    assert told in reasons(engine)
    assert reasons(engine, "C0") == ""


def test_seals_hold_where_a_later_version_writes_more_fields(certificates: tuple[Certificate, ...]) -> None:
    stored = json.loads(certificates[1].to_json())
    for request in stored["requests"]:
        assert request.pop("adjusted") == []
    assert list(edits(Certificate.from_json(json.dumps(stored)))) == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"type": "Certificate"}', "\x00", "[" * 100_000])
def test_a_file_that_is_no_certificate_is_told(
    text: str, engine: Engine, certificates: tuple[Certificate, ...]
) -> None:
    (file,) = own_ledger().glob("kit-good.C1.*")
    file.write_text(text)
    assert f"{file.name} cannot be read" in reasons(engine)


def test_one_good_certificate_among_bad_ones_is_enough(
    engine: Engine, certificates: tuple[Certificate, ...]
) -> None:
    (own_ledger() / "kit-good.C1.0000.json").write_text("{}")
    assert reasons(engine) == ""


def test_a_plugins_shipped_ledger_is_read_after_this_machines(
    engine: Engine, certificates: tuple[Certificate, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shipped = tmp_path / "shipped"
    own_ledger().rename(shipped)
    assert reasons(engine) == "there is no certificate of it"
    monkeypatch.setattr("fv_core.runtime.records.ledger._shipped", lambda card: iter([shipped]))
    assert reasons(engine) == ""
    write(replace(certificates[1], verdict=Verdict.FAILED), own_ledger())
    assert [entry.path.parent for entry in entries(engine.instance("kit/good").card)] == [
        own_ledger(),
        shipped,
        shipped,
    ]
    assert reasons(engine) == ""


@pytest.fixture
def demanding(by_hand: Any) -> Iterator[Engine]:
    with Engine([by_hand.CARD], device="cpu", require_certified=True) as engine:
        yield engine


def test_an_engine_that_requires_certificates_runs_what_is_certified(
    demanding: Engine, certificates: tuple[Certificate, ...]
) -> None:
    assert demanding.run(SMALL).used.model == "kit/good"


def test_an_engine_that_requires_certificates_refuses_what_is_not(demanding: Engine) -> None:
    for _ in range(2):
        with pytest.raises(ParityError, match="C0: there is no certificate of it; C1: there is no") as caught:
            demanding.run(SMALL)
        assert caught.value.code == "FV601"
    assert caught.value.entry.exit_code == 3
    (result,) = demanding.run_many([SMALL])
    assert result.error is not None
    assert result.error.code == "FV601"


def test_an_engine_that_requires_certificates_refuses_what_claims_nothing(kit: Any) -> None:
    with (
        Engine([kit.GOOD], device="cpu", require_certified=True) as engine,
        pytest.raises(ParityError, match="claims no parity"),
    ):
        engine.run(SMALL)


def test_a_verdict_needs_figures_that_are_numbers_within_the_tolerance() -> None:
    def figure(size: float, compared: int = 1) -> Figure:
        return Figure(taps="video", compared=compared, max_abs_diff=size)

    assert verdict_of((figure(0.0), figure(0.5)), 0.5) is Verdict.PASSED
    assert verdict_of((figure(0.0), figure(0.6)), 0.5) is Verdict.FAILED
    assert verdict_of((figure(float("nan")),), float("inf")) is Verdict.FAILED
    assert verdict_of((figure(float("inf")),), float("inf")) is Verdict.FAILED
    assert verdict_of((figure(-0.5),), 0.5) is Verdict.FAILED
    assert verdict_of((figure(0.0, compared=0),), 0.5) is Verdict.FAILED
    assert verdict_of((), 0.0) is Verdict.FAILED
