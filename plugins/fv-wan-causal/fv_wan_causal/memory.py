"""Predicts what each component needs beside its weights, in bytes.

The factors are live-tensor peaks counted on the meta device for one sample, attention taken as fused
(`tests/test_memory.py` counts again and bounds the error). Work space of kernels is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import cast

from fv_core.card import Geometry, ModelCard
from fv_core.request import ResolvedRequest
from fv_wan_causal.card import CHUNK, WINDOW

_TEXT_TOKENS = 512
_FP32 = 4


def caches(card: ModelCard, request: ResolvedRequest, dtype_bytes: int) -> dict[str, int]:
    """Keys and values of the prompt and of the window in every layer; the decoder's features, in fp32."""
    config, geometry = card.components["transformer"].config, card.geometry(request.size, request.frames)
    dim = cast(int, config["num_attention_heads"]) * cast(int, config["attention_head_dim"])
    token = 2 * cast(int, config["num_layers"]) * dim * dtype_bytes
    _, frames, height, width = geometry.latent
    _, patch_h, patch_w = cast("list[int]", config["patch_size"])
    window = cast("int | None", card.loops["rollout"].params["window"])
    kept = frames if window is None else min(frames, window)
    return {
        "slab_kv": kept * (height // patch_h) * (width // patch_w) * token,
        "text_kv": cast(int, card.components["text"].params["max_length"]) * token,
        "stream": _decoder_features(geometry, card.components["vae"].config),
    }


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
