"""The cards: sound, complete, and as far as they go those of the real models."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fv_core import Engine, Request
from fv_core.card import ComponentSpec, ModelCard, validate
from fv_core.errors import RequestError
from fv_core.plugins import find_card
from fv_core.plugins.reference import resolve_reference
from fv_core.program import LoopNode
from fv_core.request import Size, TaskType
from fv_core.runtime.records.samples import sample
from fv_core.runtime.requests.params import build_loops
from fv_cosmos3.card import CARDS, NANO, SUPER, TINY

NAMES = ("transformer", "vae", "sound")


class Unfilled:
    """A load context that leaves modules on the meta device: what a factory builds, before any weights."""

    def __init__(self, spec: ComponentSpec, dtype: torch.dtype) -> None:
        self.spec = spec
        self.dtype = dtype
        self.folder: Path | None = None
        self.filled_with: dict[str, Any] = {}
        self.parameters = 0

    def config(self, filename: str = "config.json") -> dict[str, object]:
        return dict(self.spec.config)

    def fill(self, module: nn.Module, **how: Any) -> nn.Module:
        self.filled_with = how
        self.parameters = sum(value.numel() for value in module.parameters())
        return module


def built(card: ModelCard, component: str, dtype: torch.dtype = torch.bfloat16) -> tuple[Any, Unfilled]:
    """The component that the card's factory makes of the card's config, and how it wanted to be filled."""
    spec = card.components[component]
    context = Unfilled(spec, dtype)
    return resolve_reference(spec.load, owner=component)(context), context


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.model_id)
def test_card_is_sound_and_is_what_the_plugin_offers(card: ModelCard) -> None:
    assert validate(card) == ()
    assert set(build_loops(card)) == set(card.loops)
    assert find_card(card.model_id) == card
    assert ModelCard.from_json(card.to_json()) == card


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.model_id)
@pytest.mark.parametrize("component", NAMES)
def test_parameter_counts_are_those_of_the_modules(card: ModelCard, component: str) -> None:
    _, context = built(card, component)
    assert card.components[component].parameters == context.parameters


def test_nano_is_the_default_of_the_diffusers_classes() -> None:
    with torch.device("meta"):
        from diffusers import Cosmos3AVAEAudioTokenizer, Cosmos3OmniTransformer

        defaults = Cosmos3OmniTransformer(sound_gen=True, sound_dim=64, action_gen=True, action_dim=64).config
        sound = Cosmos3AVAEAudioTokenizer().config
    own = built(NANO, "transformer")[0].module.config
    public = {name: value for name, value in defaults.items() if not name.startswith("_")}
    assert {name: own[name] for name in public} == public
    for name, value in NANO.components["sound"].config.items():
        assert list(value) == list(sound[name]) if isinstance(value, list) else value == sound[name]


def test_super_differs_from_nano_in_the_size_of_the_transformer_alone() -> None:
    differ = {
        field.name for field in fields(SUPER) if getattr(SUPER, field.name) != getattr(NANO, field.name)
    }
    assert differ == {"model_id", "summary", "components", "checkpoint"}
    for component in ("vae", "sound"):
        assert SUPER.components[component] == NANO.components[component]
    one, other = (dict(card.components["transformer"].config) for card in (NANO, SUPER))
    assert {name for name in one if one[name] != other[name]} == {
        "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
    }  # fmt: skip


def test_totals_are_the_published_ones() -> None:
    """16B and 65B with the vision tower, which is not part of these cards."""
    totals = [sum(spec.parameters for spec in card.components.values()) / 1e9 for card in (NANO, SUPER)]
    assert totals == pytest.approx([16.4, 65.2], abs=0.1)


def test_sound_has_as_many_latents_per_second_as_the_transformer_reckons_with() -> None:
    for card in CARDS:
        facts: Any = card.loops["denoise"].params
        config: Any = card.components["transformer"].config
        sound: Any = built(card, "sound")[0].module
        assert facts["sample_rate"] / facts["hop"] == config["sound_latent_fps"]
        assert (facts["hop"], facts["sample_rate"]) == (sound._hop_size, sound.config.sampling_rate)
        assert (facts["sound_channels"], facts["action_width"]) == (config["sound_dim"], config["action_dim"])
        assert {program.sample_rate for program in card.programs.values()} == {0, facts["sample_rate"]}


def test_tiny_is_the_same_classes_at_dimensions_that_batch_exactly() -> None:
    for component in NAMES:
        assert type(built(TINY, component)[0].module) is type(built(NANO, component)[0].module)
    config = built(TINY, "transformer")[0].module.config
    assert config.hidden_size % 32 == config.intermediate_size % 32 == config.vocab_size % 32 == 0


def test_time_embedder_stays_in_fp32_and_the_sound_encoder_is_not_read() -> None:
    assert built(NANO, "transformer")[1].filled_with["keep_fp32"] == ("time_embedder",)
    assert built(NANO, "transformer", torch.float32)[1].filled_with["keep_fp32"] == ()
    assert built(NANO, "sound")[1].filled_with["others"] == ("encoder",)
    assert not any(
        name.endswith(("weight_g", "weight_v"))
        for name, _ in built(TINY, "sound")[0].module.named_parameters()
    )


def test_rotary_table_holds_values_although_no_file_does() -> None:
    module = built(NANO, "transformer")[0].module
    assert not any(buffer.is_meta for buffer in module.buffers())


def test_tokens_of_the_tiny_tokenizer_fit_its_card() -> None:
    component, _ = built(TINY, "transformer")
    tokenizer = component.tokenizer
    assert len(tokenizer) == TINY.components["transformer"].config["vocab_size"]
    stops: Any = TINY.loops["reason"].params["stop"]
    assert tokenizer.convert_ids_to_tokens(list(stops)) == ["<|im_end|>", "<|endoftext|>"]
    assert tokenizer.eos_token_id in stops


def test_tasks_and_what_they_need() -> None:
    assert tuple(TINY.programs) == (
        TaskType.T2V, TaskType.T2I, TaskType.I2V, TaskType.V2V, TaskType.QA,
        TaskType.POLICY, TaskType.FORWARD_DYNAMICS, TaskType.INVERSE_DYNAMICS,
    )  # fmt: skip
    needs = {
        task: [spec.modality.value for spec in program.inputs] for task, program in TINY.programs.items()
    }
    assert {task: given for task, given in needs.items() if given} == {
        "i2v": ["image"], "v2v": ["video"], "policy": ["image"],
        "forward-dynamics": ["image", "action"], "inverse-dynamics": ["video"],
    }  # fmt: skip
    loops = {
        node.loop
        for program in TINY.programs.values()
        for node in program.nodes
        if isinstance(node, LoopNode)
    }
    assert loops == set(TINY.loops)


def test_the_plugin_and_its_cards_import_no_torch() -> None:
    code = "import sys, fv_cosmos3; list(fv_cosmos3.fv_cards()); print('torch' in sys.modules, 'numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("task", [TaskType.I2V, TaskType.V2V, TaskType.POLICY, TaskType.INVERSE_DYNAMICS])
def test_one_frame_leaves_nothing_to_go_on_with(task: TaskType) -> None:
    inputs = tuple(sample(spec, Size(64, 64), 9) for spec in TINY.programs[task].inputs)
    with Engine([TINY], device="cpu") as engine, pytest.raises(RequestError) as caught:
        engine.plan(Request(prompt="x", model=TINY.model_id, task=task, inputs=inputs, frames=1))
    assert caught.value.code in ("FV303", "FV310")


def test_embodiment_is_for_actions_alone() -> None:
    with Engine([TINY], device="cpu") as engine, pytest.raises(RequestError, match="domain") as caught:
        engine.plan(Request(prompt="x", model=TINY.model_id, params={"domain": "pusht"}))
    assert caught.value.code == "FV310"
