"""The predicted activation peaks agree with live tensors counted on the meta device at the real models' sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLWan, Cosmos3AVAEAudioTokenizer, Cosmos3OmniTransformer
from torch import Tensor

from fv_core.card import ModelCard
from fv_core.request import Size
from fv_core.testing.live_memory import ABOVE, BELOW, LivePeak, on_meta
from fv_cosmos3 import memory, pathways
from fv_cosmos3.autoencoder import _causal_convolutions
from fv_cosmos3.card import NANO, SUPER
from fv_cosmos3.joint import Step, velocities
from fv_cosmos3.loading import _folded


@contextmanager
def without_autocast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The meta device has no autocast, which the rotary table switches off."""

    def rotary(module: Any, positions: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        table = hidden.new_empty(len(hidden), 1, module.config.head_dim)
        return table, table.clone()

    with on_meta(monkeypatch) as patch:
        patch.setattr(pathways, "_rotary", rotary)
        yield


def counted_transformer(card: ModelCard, size: Size, frames: int, dtype: torch.dtype) -> int:
    module = Cosmos3OmniTransformer.from_config(card.components["transformer"].config).to(dtype)
    config, tokens = module.config, 1024
    kv = [
        torch.empty(tokens, config.num_key_value_heads, config.head_dim, dtype=dtype)
        for _ in range(2 * config.num_hidden_layers)
    ]
    sound = torch.empty(64, -(-frames * 25 // 24))
    video = torch.empty(card.geometry(size, frames).latent)
    step = Step(timestep=1, fps=24.0, video=video, clean=0, sound=sound, action=None, compression=4)
    with LivePeak(module) as peak:
        velocities(module, [step, step], [kv, kv])  # with and without the prompt
    caches = 2 * sum(tensor.numel() * tensor.element_size() for tensor in kv)
    return int(peak.peak) + caches


@pytest.mark.parametrize(
    ("card", "size", "frames"),
    [
        (NANO, Size(1280, 720), 189),
        (NANO, Size(832, 480), 1),
        (SUPER, Size(1280, 720), 189),
        (SUPER, Size(256, 256), 17),
    ],
)
def test_transformer_prediction_agrees_with_counted_peak(
    card: ModelCard, size: Size, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with without_autocast(monkeypatch):
        counted = counted_transformer(card, size, frames, torch.bfloat16)
    predicted = memory.transformer(card.geometry(size, frames), card.components["transformer"].config, 2)
    assert BELOW <= predicted / counted <= ABOVE


@pytest.mark.parametrize(("size", "frames"), [(Size(832, 480), 9), (Size(832, 480), 1), (Size(1280, 720), 9)])
def test_vae_prediction_agrees_with_counted_peak(
    size: Size, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, geometry = NANO.components["vae"].config, NANO.geometry(size, frames)
    channels, latent_frames, height, width = geometry.latent
    with without_autocast(monkeypatch):
        module = AutoencoderKLWan.from_config(config).requires_grad_(False)
        features: list[Any] = [None] * _causal_convolutions(module.decoder)
        with LivePeak(module) as peak:
            for i in range(latent_frames):
                latent = torch.empty(1, channels, 1, height, width)
                chunk = module.decoder(latent, feat_cache=features, feat_idx=[0], first_chunk=i == 0)
                del chunk
    assert BELOW <= memory.vae(geometry, config, 4) / peak.peak <= ABOVE


@pytest.mark.parametrize("frames", [25, 189])
def test_sound_prediction_agrees_with_counted_peak(frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = NANO.components["sound"].config
    with without_autocast(monkeypatch):
        module = _folded(Cosmos3AVAEAudioTokenizer.from_config({**config, "encoder_enabled": False}))
        with LivePeak(module) as peak:
            module.decode(torch.empty(1, 64, -(-frames * 25 // 24)))
    predicted = memory.sound(NANO.geometry(Size(256, 256), frames), config, 4)
    assert BELOW <= predicted / peak.peak <= ABOVE
