"""The cards agree with the real model: every name, shape and total, built on the meta device from the card alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fv_core.card import ComponentSpec, ModelCard, validate
from fv_core.plugins import find_card
from fv_core.plugins.reference import resolve_reference
from fv_core.request import TaskType
from fv_core.runtime.requests.params import build_loops
from fv_wan_causal.card import CARDS, SF_1_3B, TINY, WINDOW

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
    assert set(build_loops(card)) == {"rollout", "rollout_frame", "decode"}
    assert find_card(card.model_id) == card
    assert ModelCard.from_json(card.to_json()) == card
    assert card.capabilities == (TaskType.T2V, TaskType.I2V, TaskType.V2V)


@pytest.mark.parametrize("component", NAMES)
def test_real_model_has_every_name_and_shape_of_the_manifest(component: str) -> None:
    golden, module = MANIFEST[NAMES[component]], built(SF_1_3B, component)
    assert type(module).__name__ == golden["class"]
    assert parameters(module) == {name: shape for name, (_, shape) in golden["parameters"].items()}
    assert SF_1_3B.components[component].parameters == golden["parameter_total"]


@pytest.mark.parametrize("component", NAMES)
def test_real_config_says_nothing_else_than_the_manifest(component: str) -> None:
    golden, module = MANIFEST[NAMES[component]]["config"], built(SF_1_3B, component)
    own = module.config.to_dict() if component == "text" else module.config
    for name, value in golden.items():
        if name != "dropout_rate":
            assert json.loads(json.dumps(own[name])) == value, name


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.model_id)
@pytest.mark.parametrize("component", NAMES)
def test_parameter_counts_are_those_of_the_modules(card: ModelCard, component: str) -> None:
    module = built(card, component)
    assert card.components[component].parameters == sum(value.numel() for value in module.parameters())
    assert type(module) is type(built(SF_1_3B, component))


def test_the_whole_transformer_follows_the_runs_precision_as_in_the_reference() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        assert not built(SF_1_3B, "transformer", dtype=dtype).filled_with.get("keep_fp32")
    assert built(SF_1_3B, "text", dtype=torch.float16).filled_with["keep_fp32"] == ("wo",)
    assert SF_1_3B.components["vae"].dtype == "float32"


def test_tiny_is_deep_and_its_window_evicts_and_has_a_sink() -> None:
    params = TINY.loops["rollout"].params
    window, sink, chunk = (params[name] for name in ("window", "sink", "chunk"))
    assert isinstance(window, int) and isinstance(sink, int) and isinstance(chunk, int)
    assert built(TINY, "transformer").config.num_layers >= 6
    assert TINY.geometry(TINY.defaults.size, TINY.defaults.frames).latent[1] > window > sink + chunk > chunk
    assert TINY.loops["rollout_frame"].params == {**params, "first_frame": True}


def test_default_clip_is_the_longest_that_the_weights_were_made_for_and_fills_the_window() -> None:
    assert SF_1_3B.geometry(SF_1_3B.defaults.size, SF_1_3B.defaults.frames).latent[1] == WINDOW
    assert {SF_1_3B.loops["rollout"].params[name] for name in ("window", "trained")} == {WINDOW}
