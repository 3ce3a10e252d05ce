"""The predicted activation peaks agree with live tensors counted on the meta device at the real models' sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed
from transformers import UMT5Config, UMT5EncoderModel

from fv_core.card import ModelCard
from fv_core.request import Size
from fv_core.testing.live_memory import ABOVE, BELOW, LivePeak, on_meta
from fv_wan21 import memory
from fv_wan21.card import T2V_1_3B, T2V_14B
from fv_wan21.components import Vae


def counted_denoiser(card: ModelCard, latent: tuple[int, ...], dtype: torch.dtype) -> int:
    module = WanTransformer3DModel.from_config(card.components["transformer"].config).to(dtype)
    module.rope = WanRotaryPosEmbed(module.config.attention_head_dim, module.config.patch_size, 1024)
    module.requires_grad_(False)
    rows = (
        torch.empty(1, *latent, dtype=dtype),
        torch.empty(1, dtype=torch.int64),
        torch.empty(1, 512, 4096, dtype=dtype),
    )
    with LivePeak(module) as peak:
        module(*rows, return_dict=False)
    return int(peak.peak)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("card", "size", "frames"),
    [(T2V_1_3B, Size(832, 480), 81), (T2V_1_3B, Size(832, 480), 17), (T2V_14B, Size(1280, 720), 81)],
)
def test_denoiser_prediction_agrees_with_counted_peak(
    card: ModelCard, size: Size, frames: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    geometry = card.geometry(size, frames)
    with on_meta(monkeypatch):
        counted = counted_denoiser(card, geometry.latent, dtype)
    predicted = memory.denoiser(geometry, card.components["transformer"].config, dtype.itemsize)
    assert BELOW <= predicted / counted <= ABOVE


@pytest.mark.parametrize(
    ("size", "frames"), [(Size(832, 480), 81), (Size(832, 480), 1), (Size(1280, 720), 9)]
)
def test_vae_prediction_agrees_with_counted_peak(
    size: Size, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = T2V_1_3B.components["vae"].config
    geometry = T2V_1_3B.geometry(size, frames)
    channels, latent_frames, height, width = geometry.latent
    with on_meta(monkeypatch):
        module = AutoencoderKLWan.from_config(config).requires_grad_(False)
        features: list[Any] = [None] * Vae(module)._features
        with LivePeak(module) as peak:
            for i in range(latent_frames):
                chunk = module.decoder(
                    torch.empty(1, channels, 1, height, width),
                    feat_cache=features,
                    feat_idx=[0],
                    first_chunk=i == 0,
                )
                del chunk
    predicted = memory.vae(geometry, config, 4)
    assert BELOW <= predicted / peak.peak <= ABOVE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_text_encoder_prediction_agrees_with_counted_peak(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = T2V_1_3B.components["text"].config
    with on_meta(monkeypatch):
        module = UMT5EncoderModel(UMT5Config(**config)).to(dtype).eval().requires_grad_(False)
        with LivePeak(module) as peak:
            module(torch.empty(1, 512, dtype=torch.int64))
    predicted = memory.text_encoder(T2V_1_3B.geometry(Size(832, 480), 81), config, dtype.itemsize)
    assert BELOW <= predicted / peak.peak <= ABOVE
