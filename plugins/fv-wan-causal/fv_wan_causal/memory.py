"""Predicts what each component needs beside its weights, in bytes.

The factors are live-tensor peaks counted on the meta device for one sample, attention taken as fused
(`tests/test_memory.py` counts again and bounds the error). Work space of kernels is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fv_core.card import Geometry
from fv_wan_causal.card import CHUNK, WINDOW

_TEXT_TOKENS = 512
_FP32 = 4


def text_encoder(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """Position bias and mask of all heads, and the hidden states around them: 1.45 score matrices."""
    heads = cast(int, config["num_heads"])
    return int(1.45 * heads * _TEXT_TOKENS**2 * dtype_bytes * 2)


def denoiser(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """Keys and values of the window and of the prompt in every layer, and the widest point of a block.

    A block joins the window of one layer with the chunk's own keys and values, which are rotated in fp64.
    """
    dim = cast(int, config["num_attention_heads"]) * cast(int, config["attention_head_dim"])
    layers, feed_forward = cast(int, config["num_layers"]), cast(int, config["ffn_dim"])
    _, frames, height, width = geometry.latent
    _, patch_h, patch_w = cast("list[int]", config["patch_size"])
    frame = (height // patch_h) * (width // patch_w)
    chunk, window = min(frames, CHUNK) * frame, min(frames, WINDOW) * frame
    kept = 2 * layers * (window + _TEXT_TOKENS) * dim
    joined = 2 * window * dim
    return int((kept + joined + chunk * (2 * feed_forward + 4.5 * dim)) * dtype_bytes)


def vae(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The decoder's features and its last, full-resolution block; the clip in fp32, twice while it is joined."""
    base = cast(int, config["base_dim"])
    pixels = geometry.width * geometry.height
    per_pixel = 18.1 if geometry.frames == 1 else 50.8
    return int(pixels * base * per_pixel * dtype_bytes) + 2 * geometry.frames * pixels * 3 * _FP32
