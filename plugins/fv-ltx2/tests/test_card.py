"""The cards: legal, lossless, and each request loads what it needs and nothing else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from fv_core import Engine, ModelCard, Request
from fv_core.card import validate
from fv_core.errors import RequestError
from fv_core.program import ComponentNode, LoopNode
from fv_core.request import TaskType
from fv_ltx2.card import BASE, CARDS, DISTILLED, TINY_BASE, TINY_DISTILLED


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.model_id)
def test_card_breaks_no_rule_and_comes_back_from_json(card: ModelCard) -> None:
    assert validate(card) == ()
    again = ModelCard.from_json(card.to_json())
    assert again.digest() == card.digest()


def test_ids_and_tasks() -> None:
    assert [card.model_id for card in CARDS] == [
        "ltx2/tiny", "ltx2/tiny-base", "ltx2/2.3-distilled", "ltx2/2.3-base",
    ]  # fmt: skip
    assert {card.capabilities for card in CARDS} == {(TaskType.T2V, TaskType.I2V)}


@pytest.mark.parametrize(("tiny", "card"), [(TINY_DISTILLED, DISTILLED), (TINY_BASE, BASE)])
def test_tiny_cards_run_the_programs_of_the_real_ones(tiny: ModelCard, card: ModelCard) -> None:
    assert tiny.programs == card.programs
    assert tiny.params == card.params
    assert tiny.components.keys() == card.components.keys()
    for name, loop in card.loops.items():
        assert tiny.loops[name].params.keys() == loop.params.keys()


def test_both_stages_drive_one_transformer() -> None:
    nodes = DISTILLED.programs[TaskType.T2V].nodes
    stages = [DISTILLED.loops[node.loop] for node in nodes if isinstance(node, LoopNode)]
    assert [stage.binds for stage in stages] == [{"denoiser": "transformer"}] * 2


def test_picture_and_sound_are_decoded_on_branches_of_their_own() -> None:
    nodes = {node.id: node for node in DISTILLED.programs[TaskType.T2V].nodes}
    picture, sound, wave = nodes["decode"], nodes["decode_audio"], nodes["vocode"]
    assert isinstance(picture, ComponentNode) and isinstance(sound, ComponentNode)
    assert not {*picture.writes.values()} & {*sound.reads.values(), *wave.reads.values()}
    assert not {*sound.writes.values(), *wave.writes.values()} & {*picture.reads.values()}


@pytest.mark.parametrize("card", [TINY_DISTILLED, TINY_BASE], ids=lambda card: card.model_id)
def test_without_sound_no_audio_decoder_is_loaded(card: ModelCard) -> None:
    engine = Engine([card], device="cpu", dtype="float32")
    steps = None if card.recipe.steps_fixed else 2
    asked = Request(
        prompt="a", model=card.model_id, size=(64, 64), frames=1, steps=steps, params={"audio": False}
    )
    clip = engine.run(asked)
    loaded = engine.instance(card.model_id).loaded
    engine.close()
    assert clip.audio is None
    assert not {"audio_vae", "vocoder"} & set(loaded)
    assert {*loaded} == {*card.components} - {"audio_vae", "vocoder"}


def test_sound_has_the_vocoders_rate_and_the_clips_length() -> None:
    engine = Engine([TINY_DISTILLED], device="cpu", dtype="float32")
    clip = engine.run(Request(prompt="a", model="ltx2/tiny", seed=1, size=(64, 64), frames=17, fps=24.0))
    vocoder: Any = engine.instance("ltx2/tiny").component("vocoder").module
    rate = vocoder.config.output_sampling_rate
    engine.close()
    assert clip.audio is not None
    assert clip.audio.rate == rate == 48_000
    channels, samples = clip.audio.samples.shape
    assert (channels, samples) == (2, (4 * round(17 / 24 * 25) - 3) * 160 * 3)
    assert samples / rate == pytest.approx(17 / 24, abs=0.05)


@pytest.mark.parametrize(
    ("card", "facts", "code"),
    [
        (TINY_DISTILLED, {"size": (96, 64)}, "FV302"),
        (TINY_DISTILLED, {"frames": 16}, "FV303"),
        (TINY_DISTILLED, {"steps": 9}, "FV304"),
        (TINY_DISTILLED, {"guidance": 2.0}, "FV305"),
        (TINY_DISTILLED, {"frames": 1, "fps": 60.0}, "FV307"),
        (TINY_DISTILLED, {"params": {"stg": 1.0}}, "FV310"),
        (TINY_DISTILLED, {"params": {"audio": 1}}, "FV310"),
        (TINY_DISTILLED, {"task": TaskType.I2V}, "FV308"),
        (TINY_BASE, {"steps": 1}, "FV304"),
        (TINY_BASE, {"params": {"audio_guidance": 0.5}}, "FV310"),
    ],
)
def test_illegal_request_is_refused(card: ModelCard, facts: dict[str, Any], code: str) -> None:
    engine = Engine([card], device="cpu", dtype="float32")
    with pytest.raises(RequestError) as caught:
        engine.run(Request(prompt="a", model=card.model_id, **facts))
    engine.close()
    assert caught.value.code == code


def test_cards_load_without_torch() -> None:
    code = (
        "import sys, fv_ltx2; cards = list(fv_ltx2.fv_cards());"
        "assert len(cards) == 4; assert not {'torch', 'numpy', 'diffusers', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_picture_depends_on_seed_prompt_and_image(image_part: Any) -> None:
    engine = Engine([TINY_DISTILLED], device="cpu", dtype="float32")

    def frames(**facts: Any) -> torch.Tensor:
        asked = {"prompt": "a", "seed": 1, "size": (64, 64), "frames": 1, **facts}
        return torch.as_tensor(engine.run(Request(model="ltx2/tiny", **asked)).frames)

    shown = [frames(), frames(seed=2), frames(prompt="b"), frames(task=TaskType.I2V, inputs=(image_part,))]
    engine.close()
    for index, one in enumerate(shown):
        assert not any(torch.equal(one, other) for other in shown[:index])
