"""The official pickle becomes a folder that the card loads: every tensor, and nothing that is not one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fv_core import Engine, Request
from fv_core.errors import FvError, RequestError, WeightsError
from fv_core.runtime.convert import convert
from fv_wan_causal.card import SF_1_3B, TINY
from fv_wan_causal.convert import diffusers_name

GOLDENS = Path(__file__).parent / "goldens"
MANIFEST = Path(__file__).parents[3] / "tests" / "goldens" / "wan21_1_3b_manifest.json"
WEIGHTS = "transformer/diffusion_pytorch_model.safetensors"

State = dict[str, Tensor]


@pytest.fixture
def state() -> State:
    """The official tensors by their official names."""
    return load_file(GOLDENS / "self_forcing_official.safetensors")


@pytest.fixture
def pickled(tmp_path: Path) -> Callable[[object], Path]:
    def save(contents: object) -> Path:
        path = tmp_path / "official.pt"
        torch.save(contents, path)
        return path

    return save


@pytest.mark.parametrize("legacy", [False, True])
def test_official_file_becomes_the_folder_of_diffusers(
    legacy: bool, state: State, official: Any, tmp_path: Path
) -> None:
    file, card = tmp_path / "official.pt", official.card("wnone_s0")
    torch.save({"generator_ema": state}, file, _use_new_zipfile_serialization=not legacy)
    out = convert(card, file, tmp_path / "out")
    made, theirs = load_file(out / WEIGHTS), load_file(GOLDENS / WEIGHTS)
    assert made.keys() == theirs.keys()
    assert all(torch.equal(made[name], tensor) for name, tensor in theirs.items())
    assert json.loads((out / "transformer" / "config.json").read_text())["num_layers"] == 2
    assert sorted(os.listdir(tmp_path)) == ["official.pt", "out"]


def test_engine_runs_on_the_converted_folder(
    state: State,
    official: Any,
    pickled: Any,
    others: Path,
    folder: Path,
    tmp_path: Path,
    ask: Callable[..., Request],
) -> None:
    card = official.card("wnone_s0")
    out = convert(card, pickled({"generator_ema": state}), tmp_path / "out", others=others)
    request = ask(model=card.model_id, frames=9, size=(16, 16))
    latents = []
    for weights in (out, folder):
        with Engine([card], device="cpu", weights=weights) as engine:
            latents.append(engine.run(request).tensors["latent"])
    assert torch.equal(*latents)


def test_averaged_weights_are_taken_where_the_file_has_both(
    state: State, official: Any, pickled: Any, tmp_path: Path
) -> None:
    plain = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    both = pickled({"generator": plain, "generator_ema": state})
    out = convert(official.card("wnone_s0"), both, tmp_path / "both")
    assert load_file(out / WEIGHTS)["proj_out.weight"].any()
    out = convert(official.card("wnone_s0"), pickled({"generator": plain}), tmp_path / "plain")
    assert not load_file(out / WEIGHTS)["proj_out.weight"].any()


def test_every_tensor_of_the_real_model_has_an_official_name() -> None:
    parameters = json.loads(MANIFEST.read_text())["components"]["transformer"]["parameters"]
    official = load_file(GOLDENS / "self_forcing_official.safetensors")
    blocks = [key for key in official if key.startswith("model.blocks.0.")]
    outside = [key for key in official if not key.startswith("model.blocks.")]
    keys = outside + [key.replace(".0.", f".{n}.", 1) for key in blocks for n in range(30)]
    assert sorted(str(diffusers_name(key)) for key in keys) == sorted(parameters)


def _refused(card: Any, file: Path, out: Path, **more: Any) -> FvError:
    with pytest.raises(FvError) as refused:
        convert(card, file, out, **more)
    assert not any(path.name.endswith(".partial") for path in out.parent.iterdir())
    return refused.value


@pytest.mark.parametrize("change", ["missing", "renamed", "reshaped", "added", "text"])
def test_tensors_that_are_not_the_cards_are_refused_and_nothing_is_written(
    change: str, state: State, official: Any, pickled: Any, tmp_path: Path
) -> None:
    contents: dict[str, Any] = dict(state)
    key = "model.blocks.1.ffn.0.weight"
    match change:
        case "missing":
            del contents[key]
        case "renamed":
            contents["model.blocks.1.ffn.1.weight"] = contents.pop(key)
        case "reshaped":
            contents[key] = contents[key][:-1]
        case "added":
            contents["blocks.0.lora.weight"] = torch.zeros(1)
        case "text":
            contents[key] = "weights"
    error = _refused(official.card("wnone_s0"), pickled({"generator_ema": contents}), tmp_path / "out")
    assert isinstance(error, WeightsError) and error.code == "FV254"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("contents", [{}, {"generator": 1}, [1], "text"])
def test_contents_of_another_kind_are_refused(
    contents: object, official: Any, pickled: Any, tmp_path: Path
) -> None:
    error = _refused(official.card("wnone_s0"), pickled(contents), tmp_path / "out")
    assert error.code == "FV254"
    assert "generator_ema" in error.message


class _Code:
    """What a hostile pickle holds: it would make a folder when it is opened."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("hostile",)


def test_a_pickle_that_holds_code_is_not_opened(
    official: Any, pickled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = _refused(official.card("wnone_s0"), pickled({"generator_ema": _Code()}), tmp_path / "out")
    assert error.code == "FV258"
    assert not (tmp_path / "hostile").exists()


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x80\x02no pickle", b"{}"])
def test_a_file_that_is_no_pickle_is_refused(data: bytes, official: Any, tmp_path: Path) -> None:
    (tmp_path / "file.pt").write_bytes(data)
    assert _refused(official.card("wnone_s0"), tmp_path / "file.pt", tmp_path / "out").code == "FV258"


def test_what_is_missing_or_in_the_way_is_told(
    state: State, official: Any, pickled: Any, tmp_path: Path
) -> None:
    card, file, out = official.card("wnone_s0"), pickled({"generator_ema": state}), tmp_path / "out"
    assert _refused(card, tmp_path / "absent.pt", out).code == "FV252"
    assert _refused(card, tmp_path, out).code == "FV252"
    assert _refused(card, file, out, others=tmp_path).code == "FV252"
    (tmp_path / "empty").mkdir()
    for taken in (tmp_path, tmp_path / "empty"):
        assert _refused(card, file, taken).code == "FV315"
    assert _refused(SF_1_3B, file, out).code == "FV254"
    assert _refused(TINY, file, out).code == "FV254"


def test_a_model_without_a_converter_is_told(tmp_path: Path) -> None:
    from fv_core.plugins import find_card

    error = _refused(find_card("wan21/micro"), tmp_path / "file", tmp_path / "out")
    assert isinstance(error, RequestError) and error.code == "FV258"
