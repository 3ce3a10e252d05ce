"""`fv models` lists what works and what does not, and shows a card in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fv_core.card import ModelCard
from fv_core.plugins import Registry, find_card

Fv = Callable[..., Any]


def test_models_are_rows(fv: Fv) -> None:
    told = fv("models")
    header, *rows = [line.split() for line in told.out.splitlines()]
    assert (told.code, told.err) == (0, "")
    assert header == ["MODEL", "TASKS", "SIZE", "WEIGHTS", "ABOUT"]
    by_id = {row[0]: row[1:] for row in rows}
    assert by_id["wan21/micro"][:4] == ["t2v", "228.5", "KiB", "untrained"]
    assert by_id["wan21/t2v-1.3b"][:5] == ["t2v", "13.7", "GiB", "not", "here"]


def test_models_are_a_document(fv: Fv) -> None:
    document = fv("models", "--json").json
    tiny = next(one for one in document["models"] if one["id"] == "wan21/micro")
    card = find_card("wan21/micro")
    parameters = sum(spec.parameters for spec in card.components.values())
    assert document["broken"] == []
    assert (tiny["tasks"], tiny["weights"], tiny["digest"]) == (["t2v"], "untrained", card.digest())
    assert (tiny["parameters"], tiny["summary"]) == (parameters, card.summary)
    assert tiny["weight_bytes"] == 2 * (25_344 + 48_032) + 4 * 21_819  # the autoencoder is kept in float32


def test_a_broken_plugin_is_a_row(fv: Fv, broken_plugin: str) -> None:
    told = fv("models")
    row = next(line for line in told.out.splitlines() if line.startswith(f"{broken_plugin}/?"))
    assert (told.code, told.err) == (0, "")
    assert "broken" in row
    assert "fv-later 2.5" in row
    assert "error[FV103]" in row
    assert "wan21/micro" in told.out


def test_a_broken_plugin_is_in_the_document(fv: Fv, broken_plugin: str) -> None:
    document = fv("models", "--json").json
    [broken] = document["broken"]
    assert (broken["plugin"], broken["dist"], broken["version"]) == (broken_plugin, "fv-later", "2.5")
    assert broken["error"]["code"] == "FV103"
    assert "wan21/micro" in [one["id"] for one in document["models"]]


def test_a_model_of_a_broken_plugin_names_the_trouble(fv: Fv, broken_plugin: str) -> None:
    told = fv("generate", "a cat", "--model", f"{broken_plugin}/model")
    assert (told.code, told.out) == (3, "")
    assert told.err.startswith("error[FV103]: plugin later (fv-later 2.5, ")
    assert "fv_api 99" in told.err


def test_no_plugin_is_told(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fv_core.plugins.registry.default_registry", lambda: Registry(()))
    told = fv("models")
    assert (told.code, told.out.split()) == (0, ["MODEL", "TASKS", "SIZE", "WEIGHTS", "ABOUT"])
    assert told.err == "note: no model plugin is installed, so there is nothing to run\n"
    assert fv("generate", "a cat").err.startswith(
        "error[FV106]: model: was not named and there is no default"
    )


def test_show_tells_all_of_a_card(fv: Fv) -> None:
    told = fv("models", "show", "wan21/t2v-1.3b")
    assert (told.code, told.err) == (0, "")
    for fact in (
        find_card("wan21/t2v-1.3b").digest(),
        "t2v  encode > encode_negative > denoise > decode",
        "1,418,996,800 parameters",
        "flow.unipc2.cfg/v1, denoiser=transformer",
        "method    pretrain",
        "steps     50",
        "shift 3",
        "C1 with diffusers.WanPipeline 0.42.1",
        "832x480, 81 frames at 16 fps",
        "multiples of 16, 16 to 2048",
        "shift  0.01 to 100, default 3.0",
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
        "not pinned: no commit has been verified",
        "state     not here",
    ):
        assert fact in told.out


def test_show_prints_all_of_the_card_as_json(fv: Fv) -> None:
    told = fv("models", "show", "wan21/micro", "--json")
    card = find_card("wan21/micro")
    assert ModelCard.from_json(told.out) == card
    assert ModelCard.from_json(told.out).digest() == card.digest()
    assert "Its digest is not that of this text" in " ".join(fv("models", "show", "--help").out.split())


def test_show_refuses_an_unknown_model(fv: Fv) -> None:
    told = fv("models", "show", "wan21/t2v-13b")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error[FV101]: model 'wan21/t2v-13b': is not installed")
    assert "wan21/t2v-1.3b" in told.err
