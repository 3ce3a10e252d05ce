"""Predicts what each component needs beside its weights, in bytes.

The factors are live-tensor peaks counted on the meta device for one sample, attention taken as fused: 832x480 and
1280x720, one to 189 frames, both models (`tests/test_memory.py` counts again and bounds the error). Prompts are
reckoned at 1024 tokens each, sound at 24 frames per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fv_core.card import Geometry

_PROMPTS, _PROMPT_TOKENS = 2, 1024
_FRAMES_PER_SECOND = 24
_FP32 = 4


def transformer(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The widest point of a block, its feed-forward, for every token with both prompts; their keys and values."""
    layers, heads, head_dim = (
        _int(config, name) for name in ("num_hidden_layers", "num_key_value_heads", "head_dim")
    )
    hidden, feed_forward = _int(config, "hidden_size"), _int(config, "intermediate_size")
    _, frames, height, width = geometry.latent
    patch = _int(config, "latent_patch_size")
    tokens = frames * -(-height // patch) * -(-width // patch)
    sound = geometry.frames * cast(float, config["sound_latent_fps"]) / _FRAMES_PER_SECOND
    prompts = _PROMPTS * _PROMPT_TOKENS * layers * 2 * heads * head_dim
    return int((_PROMPTS * (tokens + sound) * (3 * feed_forward + 6.9 * hidden) + prompts) * dtype_bytes)


def vae(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The decoder's features and its last block; the clip in fp32, twice while it is joined."""
    base = _int(config, "decoder_base_dim" if config.get("decoder_base_dim") else "base_dim")
    first, further = (5.7, 21.0) if config.get("patch_size") else (18.1, 50.8)
    pixels = geometry.width * geometry.height
    per_pixel = first if geometry.frames == 1 else further
    return int(pixels * base * per_pixel * dtype_bytes) + 2 * geometry.frames * pixels * 3 * _FP32


def sound(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The decoder's last block at the full sample rate."""
    samples = geometry.frames / _FRAMES_PER_SECOND * _int(config, "sampling_rate")
    return int(4.8 * samples * _int(config, "dec_dim") * dtype_bytes)


def _int(config: Mapping[str, object], name: str) -> int:
    return cast(int, config[name])
