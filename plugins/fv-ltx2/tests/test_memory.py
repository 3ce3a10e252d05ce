"""The predicted activation peaks agree with live tensors counted on the meta device at the real model's sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLLTX2Audio, AutoencoderKLLTX2Video, LTX2VideoTransformer3DModel
from diffusers.pipelines.ltx2.connectors import LTX2TextConnectors
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from diffusers.pipelines.ltx2.vocoder import LTX2VocoderWithBWE

from fv_core.card import Geometry
from fv_core.request import Size
from fv_core.testing.live_memory import ABOVE, BELOW, LivePeak, on_meta
from fv_ltx2 import memory
from fv_ltx2.architectures import PUBLISHED
from fv_ltx2.card import DISTILLED

CLIPS = [(Size(768, 512), 121), (Size(1536, 1024), 121), (Size(768, 512), 9), (Size(768, 512), 1)]


def made(kind: Any, name: str, dtype: torch.dtype, **fewer: int) -> Any:
    config = {**getattr(PUBLISHED, name).config, **fewer}
    return kind.from_config(config).to(dtype).requires_grad_(False)


def geometry(size: Size, frames: int) -> Geometry:
    return DISTILLED.geometry(size, frames)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("size", "frames"), CLIPS)
def test_transformer_prediction_agrees_with_the_peak_of_a_clip_from_an_image(
    size: Size, frames: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    latent = geometry(size, frames).latent
    tokens, audio = latent[1] * latent[2] * latent[3], round(frames / 24 * 25)
    with on_meta(monkeypatch):
        module = made(LTX2VideoTransformer3DModel, "transformer", dtype, num_layers=2)
        with LivePeak(module) as peak:
            module(
                hidden_states=torch.empty(1, tokens, 128, dtype=dtype),
                audio_hidden_states=torch.empty(1, audio, 128, dtype=dtype),
                encoder_hidden_states=torch.empty(1, 1024, 4096, dtype=dtype),
                audio_encoder_hidden_states=torch.empty(1, 1024, 2048, dtype=dtype),
                timestep=torch.empty(1, tokens),
                audio_timestep=torch.empty(1),
                sigma=torch.empty(1),
                encoder_attention_mask=torch.empty(1, 1024),
                audio_encoder_attention_mask=torch.empty(1, 1024),
                num_frames=latent[1],
                height=latent[2],
                width=latent[3],
                audio_num_frames=audio,
                use_cross_timestep=True,
                return_dict=False,
            )
    predicted = memory.transformer(geometry(size, frames), PUBLISHED.transformer.config, dtype.itemsize)
    assert BELOW <= predicted / peak.peak <= ABOVE


@pytest.mark.parametrize(("size", "frames"), CLIPS)
def test_autoencoder_prediction_agrees_with_the_larger_of_both_peaks(
    size: Size, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = geometry(size, frames)
    with on_meta(monkeypatch):
        module = made(AutoencoderKLLTX2Video, "vae", torch.bfloat16)
        with LivePeak(module) as decoding:
            module.decode(torch.empty(1, *shape.latent, dtype=torch.bfloat16), None, return_dict=False)
        with LivePeak(module) as encoding:
            module.encode(torch.empty(1, 3, 1, size.height, size.width, dtype=torch.bfloat16))
    predicted = memory.vae(shape, PUBLISHED.vae.config, 2)
    assert BELOW <= predicted / max(decoding.peak, encoding.peak) <= ABOVE


def test_upsampler_prediction_agrees_with_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = geometry(Size(1536, 1024), 121)
    channels, frames, height, width = shape.latent
    with on_meta(monkeypatch):
        module = made(LTX2LatentUpsamplerModel, "upsampler", torch.bfloat16)
        with LivePeak(module) as peak:
            module(torch.empty(1, channels, frames, height // 2, width // 2, dtype=torch.bfloat16))
    predicted = memory.upsampler(shape, PUBLISHED.upsampler.config, 2)
    assert BELOW <= predicted / peak.peak <= ABOVE


def test_connectors_prediction_agrees_with_the_peaks_of_one_prompt_and_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape, config = geometry(Size(768, 512), 9), PUBLISHED.connectors.config
    with on_meta(monkeypatch):
        module = made(LTX2TextConnectors, "connectors", torch.bfloat16)
        for prompts, predict in ((1, memory.connectors), (2, memory.connectors_of_two)):
            with LivePeak(module) as peak:
                module(
                    torch.empty(prompts, 1024, 3840 * 49, dtype=torch.bfloat16),
                    torch.empty(prompts, 1024, dtype=torch.int64),
                )
            assert BELOW <= predict(shape, config, 2) / peak.peak <= ABOVE


def test_audio_predictions_agree_with_their_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = 121
    shape, length = geometry(Size(768, 512), frames), round(frames / 24 * 25)
    with on_meta(monkeypatch):
        decoder = made(AutoencoderKLLTX2Audio, "audio_vae", torch.bfloat16)
        with LivePeak(decoder) as decoding:
            mel = decoder.decode(torch.empty(1, 8, length, 16, dtype=torch.bfloat16), return_dict=False)[0]
        vocoder = made(LTX2VocoderWithBWE, "vocoder", torch.bfloat16)
        with LivePeak(vocoder) as vocoding:
            vocoder(mel)
    predicted = memory.audio_vae(shape, PUBLISHED.audio_vae.config, 2)
    assert BELOW <= predicted / decoding.peak <= ABOVE
    predicted = memory.vocoder(shape, PUBLISHED.vocoder.config, 2)
    assert BELOW <= predicted / vocoding.peak <= ABOVE
