"""What a certificate binds beside the card: buffers, sources, the card's probes, and runs that promise bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core import Engine, Request
from fv_core.card.certificate import sealed
from fv_core.errors import ParityError
from fv_core.extend import InterceptorSpec
from fv_core.parity.certificates import certify, write
from fv_core.request import Numerics
from fv_core.runtime.records.certified import standings_here, weights_hash
from fv_core.runtime.records.ledger import own_ledger
from fv_core.runtime.records.sources import code_hash

SMALL = Request(prompt="a ball", model="kit/good", seed=1, size=(16, 16), frames=1, steps=1)
ALTERING = InterceptorSpec(
    id="kit/altering",
    factory="interceptors:Honest",
    params="interceptors:Params",
    loop_kinds=("flow_denoise",),
    distribution_altering=True,
)


def reasons(engine: Engine) -> str:
    return "; ".join(reason for one in standings_here(engine.instance("kit/good")) for reason in one.reasons)


def test_a_persistent_buffer_is_part_of_the_weights(engine: Engine) -> None:
    instance = engine.instance("kit/good")
    module: Any = instance.component("denoiser").module
    module.register_buffer("scale", torch.ones(2))
    module.register_buffer("table", torch.ones(2), persistent=False)
    before = weights_hash(instance)
    module.table += 1
    assert weights_hash(instance) == before
    module.scale[1] += 1
    assert weights_hash(instance) != before


def test_an_edited_source_is_told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in certify(engine, "kit/good"):
        write(one, own_ledger())
    assert reasons(engine) == ""
    monkeypatch.setattr("fv_core.runtime.records.ledger.code_hash", lambda card: "another")
    assert "code: " in reasons(engine)
    assert "was certified, this is another" in reasons(engine)


def test_other_requests_than_the_probes_certify_nothing(engine: Engine) -> None:
    for one in certify(engine, "kit/good"):
        write(sealed(replace(one, requests=one.requests[:1])), own_ledger())
    assert "requests: others were certified than the probes of the card" in reasons(engine)


def test_code_is_that_of_every_module_that_the_card_names(
    by_hand: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "fv_edited"
    (package / "assets" / "certificates").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "loading.py").write_text("scale = 1\n")
    (package / "assets" / "words.txt").write_text("ball\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = replace(by_hand.CARD.components["text"], load="fv_edited.loading:text")
    card = replace(by_hand.CARD, components={**by_hand.CARD.components, "text": text})
    hashes = [code_hash(by_hand.CARD), code_hash(card)]
    (package / "loading.py").write_text("scale = 2\n")
    hashes.append(code_hash(card))
    (package / "assets" / "words.txt").write_text("bell\n")
    hashes.append(code_hash(card))
    assert len(set(hashes)) == 4
    (package / "assets" / "certificates" / "one.json").write_text("{}")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "loading.pyc").write_bytes(b"0")
    assert code_hash(card) == hashes[-1]


def test_certified_runs_refuse_fast_numerics(by_hand: Any) -> None:
    with Engine([by_hand.CARD], device="cpu", require_certified=True) as engine:
        for numerics in (Numerics.EXACT, Numerics.REFERENCE):
            with pytest.raises(ParityError) as caught:
                engine.start(replace(SMALL, numerics=numerics))
            assert caught.value.code == "FV601"
        with pytest.raises(ParityError) as caught:
            engine.start(replace(SMALL, numerics=Numerics.FAST))
        assert caught.value.code == "FV606"
        assert caught.value.entry.exit_code == 2


def test_certified_runs_refuse_a_fast_snapshot(by_hand: Any) -> None:
    with Engine([by_hand.CARD], device="cpu") as engine:
        job = engine.start(replace(SMALL, numerics=Numerics.FAST))
        taken = engine.snapshot(job)
        job.close()
    with (
        Engine([by_hand.CARD], device="cpu", require_certified=True) as engine,
        pytest.raises(ParityError, match="promises no bits"),
    ):
        engine.resume(taken)


def test_certified_engines_refuse_what_alters(by_hand: Any) -> None:
    with pytest.raises(ParityError) as caught:
        Engine([by_hand.CARD], device="cpu", require_certified=True, extensions=[ALTERING])
    assert caught.value.code == "FV606"
    assert "kit/altering" in str(caught.value)
    honest = replace(ALTERING, distribution_altering=False)
    Engine([by_hand.CARD], device="cpu", require_certified=True, extensions=[honest]).close()
