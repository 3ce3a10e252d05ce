"""Predicts what each component needs beside its weights, in bytes.

The factors are live-tensor peaks counted on the meta device for one sample, attention taken as fused: 768x512 and
1536x1024, 1, 9 and 121 frames, float32 and bfloat16 (`tests/test_memory.py` counts again and bounds the error). Where
the same component works on more for some requests (an image, guidance), the larger need is told. A clip's sound is
as long as the clip at 24 frames per second. Work space of kernels is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from fv_core.card import Geometry

_TEXT_TOKENS = 1024
_MEL_FRAMES = 4.2
_SAMPLES = 480
_FP32 = 4


def text_encoder(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """All hidden states of the prompt, stacked: three and a half times what is handed on."""
    width, layers = cast(int, config["hidden_size"]), cast(int, config["num_hidden_layers"])
    return int(3.45 * _TEXT_TOKENS * width * (layers + 1) * dtype_bytes)


def connectors(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The hidden states of a prompt, normalised and scaled for each modality."""
    width = cast(int, config["caption_channels"]) * cast(int, config["text_proj_in_factor"])
    return int(4.4 * _TEXT_TOKENS * width * dtype_bytes)


def connectors_of_two(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The same for the prompt and the negative prompt."""
    return 2 * connectors(geometry, config, dtype_bytes)


def transformer(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """Modulation per token, which a clip that begins with an image needs: twice what a clip from text does.

    The text's share is of fp32 tensors at any precision, and counts for single frames only.
    """
    dim = cast(int, config["num_attention_heads"]) * cast(int, config["attention_head_dim"])
    tokens = math.prod(geometry.latent[1:])
    return int((37.1 * tokens * dtype_bytes + 14 * _TEXT_TOKENS) * dim)


def transformer_of_two(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The same for the guided pair in one forward."""
    return 2 * transformer(geometry, config, dtype_bytes)


def vae(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The decoder's last blocks over the whole clip; for single frames the encoder."""
    base = cast("list[int]", config["decoder_block_out_channels"])[0]
    per_pixel = base * (0.141 * geometry.frames + 0.22)
    return int(geometry.width * geometry.height * per_pixel * dtype_bytes)


def upsampler(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """Four feature maps at the target's size."""
    cells = math.prod(geometry.latent[1:])
    return int(4.05 * cells * cast(int, config["mid_channels"]) * dtype_bytes)


def audio_vae(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """Seven feature maps at the spectrogram's size."""
    per_frame = cast(int, config["mel_bins"]) * cast(int, config["base_channels"])
    return int(7.25 * _MEL_FRAMES * geometry.frames * per_frame * dtype_bytes)


def vocoder(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The anti-aliased activations of the last upsampling blocks."""
    per_sample = 0.147 * cast(int, config["hidden_channels"])
    return int(per_sample * _SAMPLES * _MEL_FRAMES * geometry.frames * dtype_bytes)


def statistics(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """A latent in and out, and one between."""
    return 3 * math.prod(geometry.latent) * _FP32
