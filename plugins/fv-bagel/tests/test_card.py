"""The cards agree with the published files: names, shapes and totals, and what the published code sets beside them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.loaders.single_file_utils import convert_ldm_vae_checkpoint
from safetensors.torch import load_file, save_file
from torch import nn

from fv_bagel import loading
from fv_bagel.card import CARDS, MOT_7B, TINY
from fv_bagel.keys import published
from fv_core import Engine, OutputSpec, Request
from fv_core.card import ComponentSpec, ModelCard, validate
from fv_core.errors import CardError, WeightsError
from fv_core.plugins import find_card
from fv_core.request import Size, TaskType
from fv_core.runtime.requests.params import build_loops

NAMES = ("model", "vision", "vae")


@dataclass(frozen=True, kw_only=True)
class Unfilled:
    """A load context that leaves modules on the meta device: what a factory builds, before any weights."""

    spec: ComponentSpec
    dtype: torch.dtype = torch.bfloat16
    folder: Path | None = None
    seed: int = 0
    device: torch.device = torch.device("meta")

    def config(self, filename: str = "config.json") -> dict[str, object]:
        return dict(self.spec.config)

    def fill(self, module: nn.Module, **how: Any) -> nn.Module:
        return module


def built(card: ModelCard, component: str) -> Any:
    factory: Any = {"model": loading.mixture, "vision": loading.vision, "vae": loading.vae}[component]
    return factory(Unfilled(spec=card.components[component]))


def shapes(module: nn.Module) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in module.state_dict().items()}


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.model_id)
def test_card_is_sound_and_is_what_the_plugin_offers(card: ModelCard) -> None:
    assert validate(card) == ()
    assert set(build_loops(card)) == {"context", "question", "encode", "write", "denoise", "decode"}
    assert find_card(card.model_id) == card
    assert ModelCard.from_json(card.to_json()) == card
    assert card.capabilities == (TaskType.T2I, TaskType.EDIT, TaskType.QA)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.model_id)
@pytest.mark.parametrize("component", NAMES)
def test_parameter_counts_are_those_of_the_modules(card: ModelCard, component: str) -> None:
    module = built(card, component).module
    assert card.components[component].parameters == sum(value.numel() for value in module.parameters())


def test_the_parts_of_the_published_file_are_all_of_it(folder: Path) -> None:
    held = {name: list(value.shape) for name, value in load_file(folder / "ema.safetensors").items()}
    assert shapes(built(TINY, "model").module) | shapes(built(TINY, "vision").module) == held


def test_the_published_autoencoders_names_are_those_that_diffusers_converts(folder: Path) -> None:
    module: Any = built(TINY, "vae").module
    held = load_file(folder / "ae.safetensors")
    names = published(module)
    assert set(names.values()) == held.keys()
    converted = convert_ldm_vae_checkpoint(
        {f"first_stage_model.{name}": value for name, value in held.items()}, module.config
    )
    assert converted.keys() == names.keys()
    for name, value in converted.items():
        assert torch.equal(value.flatten(), held[names[name]].flatten()), name


def test_the_real_autoencoder_has_names_of_four_levels() -> None:
    names = published(built(MOT_7B, "vae").module)
    assert len(set(names.values())) == len(names) == 244
    assert names["decoder.up_blocks.0.resnets.2.conv1.weight"] == "decoder.up.3.block.2.conv1.weight"
    assert names["decoder.up_blocks.2.upsamplers.0.conv.bias"] == "decoder.up.1.upsample.conv.bias"
    assert names["encoder.down_blocks.1.downsamplers.0.conv.bias"] == "encoder.down.1.downsample.conv.bias"
    assert (
        names["encoder.down_blocks.1.resnets.0.conv_shortcut.bias"]
        == "encoder.down.1.block.0.nin_shortcut.bias"
    )
    assert names["decoder.mid_block.attentions.0.to_out.0.weight"] == "decoder.mid.attn_1.proj_out.weight"


@pytest.mark.parametrize("component", NAMES)
def test_tiny_is_the_same_classes_and_names(component: str) -> None:
    tiny, real = (built(card, component).module for card in (TINY, MOT_7B))
    assert type(tiny) is type(real)
    numbers = re.compile(r"\.\d+\.")
    kinds = [{numbers.sub(".N.", name) for name in shapes(module)} for module in (tiny, real)]
    assert kinds[0] <= kinds[1]
    if component != "vae":
        assert kinds[0] == kinds[1]


def test_the_real_sizes_are_those_of_the_published_configs_and_code() -> None:
    module = built(MOT_7B, "model").module
    assert len(module.language_model.model.layers) == 28
    assert list(module.vae2llm.weight.shape) == [3584, 64]
    assert list(module.latent_pos_embed.pos_embed.shape) == [64**2, 3584]
    vision = built(MOT_7B, "vision").module
    assert len(vision.vit_model.vision_model.encoder.layers) == 26  # one less than its config says
    assert list(vision.vit_pos_embed.pos_embed.shape) == [70**2, 3584]
    assert MOT_7B.geometry(Size(1024, 1024), 1).latent == (16, 1, 128, 128)


def test_the_end_of_a_text_is_the_tokenizers(mine: Any) -> None:
    marks = mine.engine.instance(TINY.model_id).component("model").words.marks
    assert TINY.loops["write"].params["stop"] == (marks.end,)


def test_no_branch_that_is_not_taken_is_loaded(mine: Any, folder: Path) -> None:
    with Engine([TINY], device="cpu", weights=folder) as engine:
        engine.run(mine.request("vlm", inputs=()))
        assert engine.instance(TINY.model_id).loaded == ("model",)
        engine.run(mine.request("t2i_nocfg", steps=1))
        assert set(engine.instance(TINY.model_id).loaded) == {"model", "vae"}


def test_every_loop_drives_one_resident_copy(mine: Any, folder: Path) -> None:
    with Engine([TINY], device="cpu", weights=folder) as engine:
        for case in ("vlm", "think", "edit"):
            engine.run(mine.request(case))
        instance = engine.instance(TINY.model_id)
        held = sum(spec.parameters for spec in TINY.components.values()) * 4
        tables = 2 * 8 * 4  # rotary frequencies, twice: as they are and as they were
        assert instance.resident_bytes() == held + tables
    bound = {loop: spec.binds for loop, spec in TINY.loops.items()}
    drivers = [
        bound["context"]["model"],
        bound["question"]["model"],
        bound["write"]["decoder"],
        bound["denoise"]["model"],
    ]
    assert set(drivers) == {"model"}


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for path in folder.glob("*.*"):
        (to / path.name).write_bytes(path.read_bytes())
    return to


def refused(folder: Path, request: Any, code: str, match: str) -> None:
    with (
        Engine([TINY], device="cpu", weights=folder) as engine,
        pytest.raises(WeightsError, match=match) as refusal,
    ):
        engine.run(request)
    assert refusal.value.code == code


def test_damaged_and_foreign_folders_are_refused(folder: Path, mine: Any, tmp_path: Path) -> None:
    request = mine.request("t2i_nocfg", steps=1)
    whole = load_file(folder / "ema.safetensors")

    here = copied(folder, tmp_path / "surplus")
    save_file({**whole, "stranger.weight": torch.zeros(1)}, here / "ema.safetensors")
    refused(here, request, "FV254", r"1 tensors are unexpected: stranger\.weight")

    here = copied(folder, tmp_path / "vision_lacks_a_part")
    save_file(
        {name: v for name, v in whole.items() if name != "connector.fc1.bias"}, here / "ema.safetensors"
    )
    refused(here, mine.request("vlm"), "FV254", r"missing: connector\.fc1\.bias")

    for name in ("ae.safetensors", "tokenizer.json", "llm_config.json"):
        here = copied(folder, tmp_path / name.partition(".")[0])
        (here / name).unlink()
        refused(here, request, "FV252", "is missing")

    here = copied(folder, tmp_path / "scaled")
    config = (here / "llm_config.json").read_text()
    (here / "llm_config.json").write_text(
        config.replace('"rope_scaling": null', '"rope_scaling": {"factor": 2}')
    )
    refused(here, request, "FV254", "rope_scaling")

    here = copied(folder, tmp_path / "words")
    words, config_path = here / "tokenizer.json", here / "tokenizer_config.json"
    words.write_text(words.read_text().replace("<|vision_end|>", "<|v_end|>"))
    refused(
        here, request, "FV254", "it has 417 tokens, the model knows 416"
    )  # its config still adds the mark
    config_path.write_text(config_path.read_text().replace("<|vision_end|>", "<|v_end|>"))
    refused(here, request, "FV254", r"lacks the marks <\|vision_end\|>")


def test_seeded_weights_are_complete_and_repeat(difference: Callable[..., float]) -> None:
    request = Request(prompt="a red hat", seed=3, size=(32, 48), steps=2, output=OutputSpec(keep=("latent",)))
    images = []
    for _ in range(2):
        with Engine([TINY], device="cpu") as engine:
            images.append(engine.run(request).tensors["latent"])
    assert difference(*images) == 0.0


def test_seeded_position_tables_have_a_row_of_sines_for_each_cell() -> None:
    with Engine([TINY], device="cpu") as engine:
        instance = engine.instance(TINY.model_id)
        tables = {
            "latent_pos_embed.pos_embed": instance.component("model").module.state_dict(),
            "vit_pos_embed.pos_embed": instance.component("vision").module.state_dict(),
        }
    for name, state in tables.items():
        assert state[name].abs().max() <= 1.0
        assert len(state[name].unique(dim=0)) == len(state[name])  # a row per cell


def test_importing_the_plugin_and_its_cards_loads_no_tensors() -> None:
    code = (
        "import sys, fv_bagel; cards = list(fv_bagel.fv_cards()); assert len(cards) == 2; "
        "assert not {'torch', 'numpy', 'transformers', 'diffusers', 'PIL'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_params_have_the_loops_that_read_them() -> None:
    changed = replace(TINY, params={**TINY.params, "surplus": TINY.params["renorm_min"]})
    with pytest.raises(CardError, match="read by no loop"):
        build_loops(changed)
