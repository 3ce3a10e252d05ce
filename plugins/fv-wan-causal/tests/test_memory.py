"""The predicted peaks agree with live tensors counted on the meta device at the real model's sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from transformers import UMT5Config, UMT5EncoderModel

from fv_core.cache import CacheContent
from fv_core.loop import ResolvedCall
from fv_core.request import Size
from fv_core.testing.live_memory import ABOVE, BELOW, LivePeak, on_meta
from fv_wan_causal import memory
from fv_wan_causal.card import CHUNK, SF_1_3B, WINDOW
from fv_wan_causal.denoiser import Denoiser
from fv_wan_causal.vae import Vae


def counted_denoiser(latent: tuple[int, ...], dtype: torch.dtype) -> int:
    """The peak while the last chunk of a clip is committed to its window, the window included."""
    config = SF_1_3B.components["transformer"].config
    module = WanTransformer3DModel.from_config(config).to(dtype).requires_grad_(False)
    channels, frames, height, width = latent
    frame, size = height // 2 * (width // 2), min(frames, CHUNK)
    before = min(frames, WINDOW) - size
    place = {"start": before, "sink": 0, "recent": before, "times": size}
    with LivePeak(module) as peak:
        window: CacheContent = [torch.empty(before * frame, 12, 128, dtype=dtype) for _ in range(60)]
        text: CacheContent = [torch.empty(512, 12, 128, dtype=dtype) for _ in range(60)]
        noise = torch.empty(channels, size, height, width)
        rows: dict[str, Any] = {"latent": noise, "timestep": 0.0, **place}
        Denoiser(module).forward_batch("commit", [ResolvedCall(rows=rows, static={}, caches=(window, text))])
    return int(peak.peak)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("size", "frames"), [(Size(832, 480), 81), (Size(832, 480), 9), (Size(1280, 720), 33)]
)
def test_denoiser_prediction_agrees_with_counted_peak(
    size: Size, frames: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    geometry = SF_1_3B.geometry(size, frames)
    with on_meta(monkeypatch):
        counted = counted_denoiser(geometry.latent, dtype)
    predicted = memory.denoiser(geometry, SF_1_3B.components["transformer"].config, dtype.itemsize)
    assert BELOW <= predicted / counted <= ABOVE


@pytest.mark.parametrize(("size", "frames"), [(Size(832, 480), 17), (Size(1280, 720), 5)])
def test_vae_prediction_agrees_with_the_counted_peak_of_decoding_and_covers_encoding(
    size: Size, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SF_1_3B.components["vae"].config
    geometry = SF_1_3B.geometry(size, frames)
    channels, latent_frames, height, width = geometry.latent
    with on_meta(monkeypatch):
        module = AutoencoderKLWan.from_config(config).requires_grad_(False)
        vae = Vae(module)
        content: CacheContent = []
        with LivePeak(module) as decoding:
            for index in range(latent_frames):
                row = torch.empty(channels, 1, height, width)
                call = ResolvedCall(rows={"latent": row}, static={"first": index == 0}, caches=(content,))
                (out,) = vae.forward_batch("decode", [call])
                content = out.caches[0] or []
                del out
        del content
        with LivePeak(module) as encoding:
            pixels = torch.empty(frames, size.height, size.width, 3, dtype=torch.uint8)
            rows: dict[str, Any] = {"pixels": pixels, "width": size.width, "height": size.height}
            vae.forward_batch("encode", [ResolvedCall(rows=rows, static={}, caches=())])
    predicted = memory.vae(geometry, config, 4)
    assert BELOW <= predicted / decoding.peak <= ABOVE
    assert predicted / encoding.peak >= BELOW


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_text_encoder_prediction_agrees_with_counted_peak(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SF_1_3B.components["text"].config
    with on_meta(monkeypatch):
        module = UMT5EncoderModel(UMT5Config(**config)).to(dtype).eval().requires_grad_(False)
        with LivePeak(module) as peak:
            module(torch.empty(1, 512, dtype=torch.int64))
    predicted = memory.text_encoder(SF_1_3B.geometry(Size(832, 480), 81), config, dtype.itemsize)
    assert BELOW <= predicted / peak.peak <= ABOVE
