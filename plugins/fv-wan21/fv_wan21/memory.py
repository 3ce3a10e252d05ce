"""Predicts what each component needs beside its weights, in bytes.

The factors are live-tensor peaks counted on the meta device for one sample, attention taken as fused: 832x480 and
1280x720, 17 and 81 frames, float32 and bfloat16 (`tests/test_memory.py` counts again and bounds the error). Work
space of kernels is not counted: on a CPU oneDNN pads channels to 16, which the 4 of `wan21/micro` pay for fourfold.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import cast

from fv_core.card import Geometry, ModelCard
from fv_core.request import ResolvedRequest

_TEXT_TOKENS = 512
_FP32 = 4


def caches(card: ModelCard, request: ResolvedRequest, dtype_bytes: int) -> dict[str, int]:
    """The decoder's features, in fp32 at any precision."""
    geometry = card.geometry(request.size, request.frames)
    return {"stream": _decoder_features(geometry, card.components["vae"].config)}


def text_encoder(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """Position bias and mask of all heads, and the hidden states around them: 1.45 score matrices."""
    heads = cast(int, config["num_heads"])
    return int(1.45 * heads * _TEXT_TOKENS**2 * dtype_bytes * 2)


def denoiser(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The widest point of a block: both sides of the feed-forward's activation, or the fp32 modulation.

    The text's projection counts per prompt token and matters for short clips only.
    """
    heads, head_dim = cast(int, config["num_attention_heads"]), cast(int, config["attention_head_dim"])
    dim, feed_forward = heads * head_dim, cast(int, config["ffn_dim"])
    _, frames, height, width = geometry.latent
    patch_t, patch_h, patch_w = cast("list[int]", config["patch_size"])
    tokens = (frames // patch_t) * (height // patch_h) * (width // patch_w)
    per_token = max(2 * feed_forward + 4.45 * dim, 11.2 * dim)
    return int((tokens * per_token + 2 * _TEXT_TOKENS * dim) * dtype_bytes)


def vae(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The decoder's features and its last, full-resolution block; the clip in fp32, twice while it is joined."""
    base = cast(int, config["base_dim"])
    pixels = geometry.width * geometry.height
    per_pixel = 18.1 if geometry.frames == 1 else 50.8
    return int(pixels * base * per_pixel * dtype_bytes) + 2 * geometry.frames * pixels * 3 * _FP32


def _decoder_features(geometry: Geometry, config: Mapping[str, object]) -> int:
    """Bytes that the decoder keeps between latent frames: what each causal convolution saw of its last two frames.

    diffusers 0.42.1 `WanDecoder3d`: one convolution in, two residual blocks in the middle, a level of blocks for each
    multiplier, whose upsampling in time is a convolution too, one out.
    """
    base, blocks = cast(int, config["base_dim"]), cast(int, config["num_res_blocks"])
    multiples = cast("list[int]", config["dim_mult"])
    in_time = [*reversed(cast("list[bool]", config["temperal_downsample"])), False]
    widths = [base * multiple for multiple in (multiples[-1], *reversed(multiples))]
    _, frames, height, width = geometry.latent
    cells = height * width
    kept = (cast(int, config["z_dim"]) + 4 * widths[0]) * cells
    for level, (before, after) in enumerate(pairwise(widths)):
        into = before // 2 if level else before
        kept += (into + (2 * blocks + 1 + in_time[level]) * after) * cells
        cells *= 4 if level < len(multiples) - 1 else 1
    return min(frames, 2) * (kept + widths[-1] * cells) * _FP32 + len("Rep")  # the mark of a first frame
