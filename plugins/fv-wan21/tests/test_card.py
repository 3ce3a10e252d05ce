"""The cards agree with the real models: every name, shape and total, built on the meta device from the card alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fv_core.card import ComponentSpec, ModelCard, validate
from fv_core.plugins import find_card
from fv_core.plugins.reference import resolve_reference
from fv_core.runtime.requests.params import build_loops
from fv_wan21 import loading
from fv_wan21.card import CARDS, MICRO, T2V_1_3B, T2V_14B

GOLDENS = Path(__file__).parents[3] / "tests" / "goldens"
MANIFEST: dict[str, Any] = json.loads((GOLDENS / "wan21_1_3b_manifest.json").read_text())["components"]
NAMES = {"text": "text_encoder", "transformer": "transformer", "vae": "vae"}


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
        module.filled_with = how  # type: ignore[assignment]
        return module


def built(card: ModelCard, component: str, **context: Any) -> Any:
    """The module that the card's factory makes of the card's config, and how it wants to be filled."""
    spec = card.components[component]
    return resolve_reference(spec.load, owner=component)(Unfilled(spec=spec, **context)).module


def parameters(module: nn.Module) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in module.named_parameters()}


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.model_id)
def test_card_is_sound_and_is_what_the_plugin_offers(card: ModelCard) -> None:
    assert validate(card) == ()
    assert set(build_loops(card)) == {"denoise", "decode"}
    assert find_card(card.model_id) == card
    assert ModelCard.from_json(card.to_json()) == card


@pytest.mark.parametrize("component", NAMES)
def test_1_3b_has_every_name_and_shape_of_the_manifest(component: str) -> None:
    golden, module = MANIFEST[NAMES[component]], built(T2V_1_3B, component)
    assert type(module).__name__ == golden["class"]
    assert parameters(module) == {name: shape for name, (_, shape) in golden["parameters"].items()}
    assert len(parameters(module)) == golden["tensor_count"]
    assert T2V_1_3B.components[component].parameters == golden["parameter_total"]


@pytest.mark.parametrize("component", NAMES)
def test_1_3b_is_filled_with_the_aliases_and_fp32_modules_of_the_manifest(component: str) -> None:
    golden = MANIFEST[NAMES[component]]
    for dtype in (torch.float16, torch.bfloat16):
        how = built(T2V_1_3B, component, dtype=dtype).filled_with
        assert list(how.get("aliases") or {}) == golden["state_dict_aliases"]
        kept = set(golden["keep_in_fp32_modules"])
        if component == "text" and dtype is torch.bfloat16:
            kept = set()  # transformers keeps `wo` in fp32 for a float16 load only
        assert set(how.get("keep_fp32", ())) == kept


@pytest.mark.parametrize("component", NAMES)
def test_1_3b_config_says_nothing_else_than_the_manifest(component: str) -> None:
    golden = MANIFEST[NAMES[component]]["config"]
    own = (
        built(T2V_1_3B, component).config.to_dict()
        if component == "text"
        else built(T2V_1_3B, component).config
    )
    for name, value in golden.items():
        if name != "dropout_rate":
            assert json.loads(json.dumps(own[name])) == value, name


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.model_id)
@pytest.mark.parametrize("component", NAMES)
def test_parameter_counts_are_those_of_the_modules(card: ModelCard, component: str) -> None:
    module = built(card, component)
    assert card.components[component].parameters == sum(value.numel() for value in module.parameters())


def test_14b_differs_from_1_3b_in_the_transformer_and_the_shift_alone() -> None:
    for component in ("text", "vae"):
        assert T2V_14B.components[component] == T2V_1_3B.components[component]
    module = built(T2V_14B, "transformer")
    assert module.config.num_layers == 40
    assert module.config.num_attention_heads * module.config.attention_head_dim == 5120
    differ = [
        field.name
        for field in fields(T2V_14B)
        if getattr(T2V_14B, field.name) != getattr(T2V_1_3B, field.name)
    ]
    assert set(differ) == {"model_id", "summary", "components", "recipe", "checkpoint"}
    assert (T2V_1_3B.recipe.shift, T2V_14B.recipe.shift) == (3.0, 5.0)


def test_tiny_is_the_same_classes_at_dimensions_that_batch_exactly() -> None:
    for component in NAMES:
        assert type(built(MICRO, component)) is type(built(T2V_1_3B, component))
    config = built(MICRO, "transformer").config
    assert config.num_attention_heads * config.attention_head_dim % 32 == 0
    assert config.ffn_dim % 32 == 0


def test_rotary_tables_hold_values_although_no_file_does() -> None:
    golden = MANIFEST["transformer"]["non_persistent_buffers"]
    buffers = dict(built(T2V_1_3B, "transformer").named_buffers())
    assert sorted(buffers) == sorted(golden)
    assert not any(buffer.is_meta for buffer in buffers.values())


def test_factories_are_named_by_the_cards() -> None:
    named = {spec.load for card in CARDS for spec in card.components.values()}
    assert named == {f"{loading.__name__}:{name}" for name in ("text_encoder", "denoiser", "vae")}
