"""Mistakes that a port of these pipelines invites: each must show against the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core.loop import ResolvedCall
from fv_core.loop.rng import seed_state, torch_normal
from fv_ltx2 import denoise, guidance, scales, schedule, start
from fv_ltx2.denoise import JointDenoise
from fv_ltx2.packing import pack, pack_audio, unpack
from fv_ltx2.statistics import Statistics
from fv_ltx2.transformer import Transformer

Patch = pytest.MonkeyPatch
Compared = Callable[..., dict[str, float]]

SMALL: dict[str, Any] = {"size": (128, 64), "frames": 9}
GUIDED: dict[str, Any] = {"size": (96, 64), "frames": 9, "steps": 2}


def audio_noise_first(patch: Patch) -> None:
    def wrong(rng: Tensor, video: Any, audio: Any) -> tuple[Tensor, Tensor, Tensor]:
        audio_noise, rng = torch_normal(rng, audio)
        video_noise, rng = torch_normal(rng, video)
        return pack(video_noise), pack_audio(audio_noise), rng

    patch.setattr(denoise, "noise", wrong)


def noise_of_tokens(patch: Patch) -> None:
    def wrong(rng: Tensor, video: Any, audio: Any) -> tuple[Tensor, Tensor, Tensor]:
        video_noise, rng = torch_normal(rng, (video[1] * video[2] * video[3], video[0]))
        audio_noise, rng = torch_normal(rng, audio)
        return video_noise, pack_audio(audio_noise), rng

    patch.setattr(denoise, "noise", wrong)


def refine_noise_of_a_new_stream(patch: Patch) -> None:
    right = start.renoised
    patch.setattr(denoise, "renoised", lambda tokens, amount, rng: right(tokens, amount, seed_state(7)))


def refine_noise_of_the_latent(patch: Patch) -> None:
    right = start.renoised

    def wrong(tokens: Tensor, amount: float, rng: Tensor) -> tuple[Tensor, Tensor]:
        if tokens.shape[0] != 2 * 2 * 4:  # of the audio
            return right(tokens, amount, rng)
        latent, rng = right(unpack(tokens, (2, 2, 4)), amount, rng)
        return pack(latent), rng

    patch.setattr(denoise, "renoised", wrong)


def no_round_trip_through_data_space(patch: Patch) -> None:
    right = JointDenoise.predict

    def wrong(self: JointDenoise, state: Any, result: Any) -> Any:
        (output,) = result.outputs
        found = right(self, state, result)
        velocity, audio_velocity = output.tensors["velocity"], output.tensors["audio_velocity"]
        return replace(found, velocity=velocity, audio_velocity=audio_velocity)

    patch.setattr(JointDenoise, "predict", wrong)


def truncated_timesteps(patch: Patch) -> None:
    right = schedule.timesteps
    patch.setattr(denoise, "timesteps", lambda sigmas: tuple(float(int(t)) for t in right(sigmas)))


def statistics_left_out(patch: Patch) -> None:
    def wrong(self: Statistics, latent: Tensor, audio: Tensor) -> dict[str, Tensor]:
        return {"latent": latent, "audio_latent": audio}

    patch.setattr(Statistics, "_denormalised", wrong)
    patch.setattr(Statistics, "_normalised", wrong)


def image_left_out(patch: Patch) -> None:
    patch.setattr(denoise, "with_image", lambda tokens, image: tokens)


def image_seen_as_noisy(patch: Patch) -> None:
    right = Transformer.forward_batch

    def wrong(self: Transformer, op: str, calls: Any) -> Any:
        return right(self, op, [replace(call, rows={**call.rows, "clean": 0}) for call in calls])

    patch.setattr(Transformer, "forward_batch", wrong)


def image_drifts(patch: Patch) -> None:
    right = JointDenoise.update

    def wrong(self: JointDenoise, state: Any, prediction: Any, result: Any) -> Any:
        moved = right(self, state, prediction, result)
        change = state.sigmas[state.step + 1] - state.sigmas[state.step]
        return replace(moved, latent=state.latent + change * prediction.velocity)

    patch.setattr(JointDenoise, "update", wrong)


def upsampled_image_redrawn(patch: Patch) -> None:
    def wrong(latent: Tensor, amount: float, rng: Tensor) -> tuple[Tensor, Tensor]:
        mixed, rng = start.renoised(latent, amount, rng)
        return pack(mixed), rng

    patch.setattr(denoise, "renoised_after_first", wrong)


def negative_prompt_lost(patch: Patch) -> None:
    right = Transformer.forward_batch

    def wrong(self: Transformer, op: str, calls: Any) -> Any:
        return right(self, op, [replace(call, rows={**call.rows, "prompt": 1}) for call in calls])

    patch.setattr(Transformer, "forward_batch", wrong)


def _static(patch: Patch, **values: Any) -> None:
    right = Transformer.forward_batch

    def wrong(self: Transformer, op: str, calls: Any) -> Any:
        return right(self, op, [replace(call, static={**call.static, **values}) for call in calls])

    patch.setattr(Transformer, "forward_batch", wrong)


def no_block_is_skipped(patch: Patch) -> None:
    _static(patch, skip=-1)


def modalities_see_each_other(patch: Patch) -> None:
    _static(patch, isolated=False)


def contrast_is_not_rescaled(patch: Patch) -> None:
    patch.setattr(guidance, "_rescaled", lambda guided, cond, amount: guided)


def audio_guided_like_the_picture(patch: Patch) -> None:
    right = scales.scales_of
    patch.setattr(denoise, "scales_of", lambda request: (right(request)[0],) * 2)


DISTILLED = (
    audio_noise_first, noise_of_tokens, refine_noise_of_a_new_stream, refine_noise_of_the_latent,
    no_round_trip_through_data_space, truncated_timesteps, statistics_left_out,
)  # fmt: skip
IMAGE = (image_left_out, image_seen_as_noisy, image_drifts, upsampled_image_redrawn)
BASE = (
    audio_noise_first, truncated_timesteps, negative_prompt_lost, no_block_is_skipped, modalities_see_each_other,
    contrast_is_not_rescaled, audio_guided_like_the_picture,
)  # fmt: skip


@pytest.mark.parametrize("mutant", DISTILLED)
def test_mistake_in_two_stages_shows(
    mutant: Callable[[Patch], None], compared: Compared, monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    found = compared(**SMALL)
    assert found["latent"] > 0
    assert found["audio"] > 0


@pytest.mark.parametrize("mutant", IMAGE)
def test_mistake_with_an_image_shows(
    mutant: Callable[[Patch], None], compared: Compared, monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    assert compared(image=True, **SMALL)["latent"] > 1e-4


@pytest.mark.parametrize("mutant", BASE)
def test_mistake_in_guidance_shows(
    mutant: Callable[[Patch], None], compared: Compared, monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    found = compared(**GUIDED)
    assert found["latent"] > 1e-5
    assert found["audio"] > 1e-5


def test_right_padding_shows(compared: Compared, mine: Any, case_of: Any, monkeypatch: Patch) -> None:
    """In the bits alone: positions are relative and the connectors move a prompt to the front."""
    card = case_of().card
    tokenizer = mine.engine(card).instance(card.model_id).component("text").tokenizer
    monkeypatch.setattr(tokenizer, "padding_side", "right")
    assert compared(**SMALL)["latent"] > 0


def test_unpatched_runs_of_the_same_cases_are_equal(compared: Compared) -> None:
    for facts in (SMALL, {"image": True, **SMALL}, GUIDED):
        assert not any(compared(**facts).values())


def test_missing_prompt_raises(mine: Any, case_of: Any) -> None:
    """A guided call whose negative prompt never came is refused, not answered with another prompt."""
    card = case_of(steps=2).card
    transformer = mine.engine(card).instance(card.model_id).component("transformer")
    rows: dict[str, Any] = {
        "latent": torch.zeros(6, 8), "audio_latent": torch.zeros(2, 8), "timestep": 1000.0, "prompt": 1,
        "text_video": torch.zeros(1, 64, 32), "text_audio": torch.zeros(1, 64, 32),
        "text_mask": torch.ones(1, 64), "frames": 1, "height": 2, "width": 3, "clean": 0, "fps": 24.0,
    }  # fmt: skip
    static = {"skip": -1, "isolated": False, "by_channel": True}
    with pytest.raises(ValueError, match="holds 1 prompts"):
        transformer.forward_batch("velocity", [ResolvedCall(rows=rows, static=static, caches=())])
