"""C1 parity: fv under reference numerics gives the bits of diffusers' pipelines on the folder they saved."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import diffusers
import pytest
import torch

DISTILLED = {"plain_draft", "plain_draft_audio", "upsampled", "latent", "video", "audio"}
BASE = {"latent", "video", "audio"}
LONG = " ".join(f"a red circle {i} moves right" for i in range(40))
OFF = {
    "stg": 0.0,
    "modality": 1.0,
    "rescale": 0.0,
    "audio_stg": 0.0,
    "audio_modality": 1.0,
    "audio_rescale": 0.0,
}

Compared = Callable[..., dict[str, float]]


def exact(found: dict[str, float], names: set[str]) -> bool:
    """Every tensor was compared, and none differs."""
    assert found.keys() == names
    return not any(found.values())


def test_reference_is_the_version_that_the_cards_name() -> None:
    from fv_ltx2.card import CARDS

    assert {card.parity.reference_version for card in CARDS if card.parity} == {diffusers.__version__}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"size": (64, 64), "frames": 1, "seed": 2**63 + 5},
        {"size": (64, 128), "frames": 17, "fps": 30.0, "prompt": "  Meer \U0001f30a \u5708  "},
        {"size": (192, 128), "frames": 9, "fps": 12.5, "prompt": LONG},
    ],
)
def test_both_stages_equal_the_pipelines(facts: dict[str, Any], compared: Compared) -> None:
    assert exact(compared(**facts), DISTILLED)


@pytest.mark.parametrize("facts", [{}, {"size": (64, 64), "frames": 1}, {"size": (64, 128), "frames": 17}])
def test_both_stages_from_an_image_equal_the_pipelines(facts: dict[str, Any], compared: Compared) -> None:
    assert exact(compared(image=True, **facts), DISTILLED)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"size": (96, 64), "frames": 1, "seed": 3},
        {"steps": 4, "size": (64, 96), "frames": 17, "fps": 30.0, "negative": ""},
        {"image": True},
    ],
)
def test_full_guidance_equals_the_pipeline(facts: dict[str, Any], compared: Compared) -> None:
    assert exact(compared(**{"steps": 2, **facts}), BASE)


@pytest.mark.parametrize(
    "facts",
    [
        {**OFF, "guidance": 1.0},
        {**OFF},
        {**OFF, "guidance": 1.0, "stg": 1.0, "audio_stg": 2.0},
        {**OFF, "guidance": 1.0, "modality": 3.0},
        {**OFF, "guidance": 1.0, "rescale": 1.0, "audio_rescale": 0.5},
        {**OFF, "guidance": 1.0, "stg": 0.0, "audio_stg": 1.0, "image": True},
    ],
)
def test_each_term_of_guidance_alone_equals_the_pipeline(facts: dict[str, Any], compared: Compared) -> None:
    assert exact(compared(steps=2, size=(96, 64), **facts), BASE)


@pytest.mark.parametrize("steps", [0, 2])
def test_without_sound_the_picture_has_the_same_bits(steps: int, compared: Compared) -> None:
    assert exact(compared(steps=steps, audio=False), (BASE if steps else DISTILLED) - {"audio"})


@pytest.mark.parametrize("facts", [{}, {"image": True, "frames": 1}, {"steps": 2, "frames": 1}])
def test_bfloat16_latents_and_frames_equal_the_pipelines(facts: dict[str, Any], compared: Compared) -> None:
    found = compared(dtype="bfloat16", size=(64, 64), **facts)
    waveform = found.pop("audio")
    assert not any(found.values())
    assert waveform < 0.02  # the pipeline computes the vocoder's resampling filter in bf16, fv in fp32


def test_every_prompt_of_a_sample_of_the_product_equals_the_pipelines(soak: bool, compared: Compared) -> None:
    rng = random.Random(1)
    for seed in range(60 if soak else 1):
        facts = {
            "steps": rng.choice([0, 0, 2, 5]),
            "size": (64 * rng.randint(1, 3), 64 * rng.randint(1, 3)),
            "frames": 8 * rng.randint(0, 3) + 1,
            "fps": rng.choice([8.0, 24.0, 25.0, 29.97]),
            "image": rng.random() < 0.3,
        }
        assert not any(compared(seed=seed, **facts).values()), facts


def test_comparison_is_not_of_constants(reference: Any, case_of: Any) -> None:
    found = reference.outputs(case_of())
    assert all(float(tensor.std()) > 1e-3 for tensor in found.values())
    assert not torch.equal(found["video"], reference.outputs(case_of(image=True))["video"])


def test_a_prompt_that_is_cut_is_told(mine: Any, case_of: Any) -> None:
    adjusted = "".join(mine.clip(case_of(prompt=LONG, size=(192, 128), fps=12.5)).used.adjusted)
    assert "was cut to the 64" in adjusted


def test_an_image_that_is_stretched_is_told(mine: Any, case_of: Any) -> None:
    assert "was stretched" in "".join(mine.clip(case_of(image=True)).used.adjusted)
