"""Checkpoints that lie in one folder under names of their own: several components of a file, and a map of its keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fv_core.card import CheckpointManifest, ComponentSpec, ModelCard, RecipeSpec
from fv_core.errors import WeightsError
from fv_core.weights.checkpoint import CheckpointContext
from fv_core.weights.pull_plan import _needed
from fv_core.weights.pull_record import FileFacts
from fv_core.weights.store import fingerprint, locate, size_of, verify

FILE = "ema.safetensors"
CARD = ModelCard(
    model_id="flat/tiny",
    family="flat",
    version="1",
    components={
        "trunk": ComponentSpec(load="absent:trunk", files=(FILE,)),
        "tower": ComponentSpec(load="absent:tower", files=(FILE,)),
        "vae": ComponentSpec(load="absent:vae", files=("ae.safetensors",)),
    },
    loops={},
    programs={},
    recipe=RecipeSpec(assumes_loop="none/v1"),
    checkpoint=CheckpointManifest(repo="flat/tiny"),
)


class Part(nn.Module):
    """Two layers, without values."""

    def __init__(self) -> None:
        super().__init__()
        with torch.device("meta"):
            self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 2)


def tensors(seed: int, *layers: str) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    shapes = {"first": (3, 2), "second": (2, 3)}
    found: dict[str, Tensor] = {}
    for layer in layers:
        shape = shapes[layer.rpartition(".")[2]]
        found |= {f"{layer}.weight": torch.randn(shape), f"{layer}.bias": torch.randn(shape[0])}
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "flat"
    root.mkdir()
    save_file(tensors(0, "first", "second", "tower.first", "tower2.second"), root / FILE)
    save_file(
        {f"old.{name}": value for name, value in tensors(1, "first", "second").items()},
        root / "ae.safetensors",
    )
    (root / "llm_config.json").write_text("{}")
    return root


def context(folder: Path, component: str = "trunk") -> CheckpointContext:
    return CheckpointContext(CARD.components[component], folder, 0, torch.device("cpu"), torch.float32)


def test_a_component_reads_its_part_of_a_file_and_leaves_the_others(folder: Path) -> None:
    part = context(folder).fill(Part(), others=("tower", "tower2"))
    for name, value in part.state_dict().items():
        assert torch.equal(value, load_file(folder / FILE)[name])


def test_what_belongs_to_nobody_is_refused(folder: Path) -> None:
    with pytest.raises(WeightsError, match=r"2 tensors are unexpected: tower2\.second\.bias") as refusal:
        context(folder).fill(Part(), others=("tower",))  # tower2 is another name, not a part of tower
    assert refusal.value.code == "FV254"


def test_a_part_that_is_given_to_others_is_missing(folder: Path) -> None:
    with pytest.raises(
        WeightsError, match=r"2 tensors of the model are missing: second\.bias, second\.weight"
    ):
        context(folder).fill(Part(), others=("tower", "tower2", "second"))


def key_map() -> dict[str, str]:
    return {name: f"old.{name}" for name in Part().state_dict()}


def test_a_key_map_reads_tensors_under_the_names_that_the_file_has(folder: Path) -> None:
    part = context(folder, "vae").fill(Part(), names=key_map())
    for name, value in part.state_dict().items():
        assert torch.equal(value, load_file(folder / "ae.safetensors")[f"old.{name}"])


def test_names_can_be_exchanged(folder: Path) -> None:
    exchanged = {"first.bias": "second.weight", "second.weight": "first.bias"}
    module: Any = Part()
    module.first.bias, module.second.weight = module.second.weight, module.first.bias
    save_file(tensors(2, "first", "second"), folder / FILE)
    part = context(folder).fill(module, names=exchanged)
    assert torch.equal(part.first.bias, load_file(folder / FILE)["second.weight"])
    assert torch.equal(part.second.weight, load_file(folder / FILE)["first.bias"])


def test_a_key_map_is_checked_both_ways(folder: Path) -> None:
    names = key_map()
    left = names.pop("first.bias")
    with pytest.raises(WeightsError, match=r"1 tensors of the model are missing: first\.bias"):
        context(folder, "vae").fill(Part(), names=names)
    held = load_file(folder / "ae.safetensors")
    save_file({**held, "first.bias": held[left].clone()}, folder / "ae.safetensors")
    with pytest.raises(WeightsError, match=r"1 tensors are unexpected: first\.bias"):
        context(folder, "vae").fill(Part(), names=key_map())


def test_a_wrong_shape_is_told_by_the_name_that_the_file_has(folder: Path) -> None:
    held = load_file(folder / "ae.safetensors")
    save_file({**held, "old.first.bias": torch.zeros(4)}, folder / "ae.safetensors")
    with pytest.raises(WeightsError, match=r"tensor old\.first\.bias has shape \[4\], the model has \[3\]"):
        context(folder, "vae").fill(Part(), names=key_map())


def test_another_subfolder_is_read_in_the_layout_of_diffusers(folder: Path) -> None:
    (folder / "extra").mkdir()
    save_file(tensors(3, "first", "second"), folder / "extra" / "diffusion_pytorch_model.safetensors")
    part = context(folder).fill(Part(), subfolder="extra")
    assert torch.equal(
        part.first.bias, load_file(folder / "extra" / "diffusion_pytorch_model.safetensors")["first.bias"]
    )


def test_an_absent_file_is_named(folder: Path) -> None:
    (folder / FILE).unlink()
    with pytest.raises(WeightsError, match="the file is missing") as refusal:
        context(folder).fill(Part())
    assert (refusal.value.code, refusal.value.name) == ("FV252", str(folder / FILE))
    with pytest.raises(WeightsError, match="the folder is missing"):
        context(folder / "nowhere").fill(Part())


def test_the_store_knows_files_by_name(folder: Path) -> None:
    assert locate(CARD, folder) == folder
    assert verify(CARD, folder) == []
    assert size_of(CARD, folder) == sum(path.stat().st_size for path in folder.iterdir())
    before = fingerprint(CARD, folder)
    save_file(tensors(9, "first", "second"), folder / "unread.safetensors")
    assert fingerprint(CARD, folder) == before
    save_file({f"old.{n}": v for n, v in tensors(4, "first", "second").items()}, folder / "ae.safetensors")
    assert fingerprint(CARD, folder) != before


def test_verify_finds_damage_and_absence_in_named_files(folder: Path) -> None:
    whole = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(whole[:-4])
    (folder / "ae.safetensors").unlink()
    (folder / "llm_config.json").write_text("{")
    found = {Path(problem.file).name: problem.reason for problem in verify(CARD, folder)}
    assert set(found) == {FILE, "ae.safetensors", "llm_config.json"}
    assert "truncated" in found[FILE]
    assert "missing" in found["ae.safetensors"]


def test_a_pull_takes_the_named_files_and_the_configs() -> None:
    paths = (
        FILE,
        "ae.safetensors",
        "llm_config.json",
        "vocab.json",
        "model.safetensors",
        "app.py",
        "ema.bin",
    )
    offered = [FileFacts(path=path, bytes=1, digest="git:0") for path in paths]
    assert [facts.path for facts in _needed(CARD, "flat/tiny", offered)] == list(paths[:4])
    with pytest.raises(WeightsError, match=r"does not hold ema\.safetensors") as refusal:
        _needed(CARD, "flat/tiny", offered[1:])
    assert refusal.value.code == "FV255"


def test_a_card_of_named_files_is_lossless_json() -> None:
    assert ModelCard.from_json(CARD.to_json()) == CARD
    assert json.loads(CARD.to_json())["components"]["vae"]["files"] == ["ae.safetensors"]
