"""Predicts what each component needs beside its weights, in bytes.

The factors are live-tensor peaks counted on the meta device for one image, attention taken as fused: 512x512 and
1024x1024, float32 and bfloat16 (`tests/test_memory.py` counts again and bounds the error). The mixture is predicted for
an edit, whose contexts are the largest; an image made from text alone holds some hundred tokens of context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from fv_bagel.prompts import PLANNING, REASONING
from fv_core.card import Geometry, ModelCard
from fv_core.request import Modality, ResolvedRequest, Size, TaskType

_TEXT_TOKENS = 512
_LATENT_PATCH = 2
_VISION_TOKENS = 1.34  # to a latent token, at most: 14 pixels a side to 16, rounded up to whole patches
_BRANCHES = 3  # of guidance, which share a forward
_FP32 = 4
_MARKS = 2  # tokens around a block
_REREAD = (
    3  # tokens that one that was written comes to when its text is read, at most: broken text has three bytes
)


def caches(card: ModelCard, request: ResolvedRequest, dtype_bytes: int) -> dict[str, int]:
    """Keys and values of the contexts, each whole by itself: the most that are there while one more is made.

    A token is a byte at least. Of an answer, that is the question's context beside the one that is written on from it;
    of an image, those of guidance, before or after the last block, and what a thought adds.
    """
    config, answers = card.components["model"].config, request.task is TaskType.QA
    size = {name: cast(int, config[name]) for name in config if isinstance(config[name], int)}
    head = size["hidden_size"] // size["num_attention_heads"]
    token = 2 * size["num_hidden_layers"] * size["num_key_value_heads"] * head * dtype_bytes
    thinks, written = bool(request.params["think"]), cast(int, request.params["max_tokens"])
    told = _block(REASONING if answers else PLANNING) if thinks else 0
    images = any(one.modality is Modality.IMAGE for one in request.inputs)
    seen = _image(card, request.size, latents=not answers) if images else 0
    text = _block(request.prompt)
    whole = told + seen + text
    if answers:
        return {"paged_kv": (2 * whole + _MARKS + written) * token}
    guided = (2 * told + seen + text if images else 0) + told + seen
    thought = whole + _MARKS + _REREAD * written if thinks else 0
    return {"paged_kv": (whole + guided + thought) * token, "stream": 0}


def _block(text: str) -> int:
    return len(text.encode()) + _MARKS


def _image(card: ModelCard, size: Size, *, latents: bool) -> int:
    """Tokens of an image, as the vision tower sees it and, for an edit, as the autoencoder has it."""
    vision = card.components["vision"]
    patch, smallest = cast(int, vision.config["patch_size"]), cast(int, vision.params["smallest"])
    scale = max(1.0, smallest / min(size.width, size.height))
    most = cast(int, vision.params["side"])
    rows, columns = (min(math.ceil(side * scale / patch) + 1, most) for side in (size.height, size.width))
    cells = math.prod(card.geometry(size, 1).latent[2:]) // _LATENT_PATCH**2 + _MARKS if latents else 0
    return rows * columns + _MARKS + cells


def mixture(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """A feed-forward's three inner tensors and the rows around it, and the contexts beside them.

    Either while the image is looked at, or while one is made, the guidance branches in one forward: their rows are
    packed beside the rows of each.
    """
    size = {name: cast(int, config[name]) for name in config if isinstance(config[name], int)}
    hidden, head = size["hidden_size"], size["hidden_size"] // size["num_attention_heads"]
    _, _, height, width = geometry.latent
    latents = (height // _LATENT_PATCH) * (width // _LATENT_PATCH)
    seen = latents * _VISION_TOKENS
    row = 3 * size["intermediate_size"] + 7.65 * hidden
    kept = 2 * size["num_hidden_layers"] * size["num_key_value_heads"] * head
    looking = seen * row + (2 * latents + seen) * kept
    making = _BRANCHES * latents * (row + hidden) + 2 * (latents + seen + _TEXT_TOKENS) * kept
    return int(max(looking, making) * dtype_bytes)


def vision(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """Both sides of a feed-forward's activation, the rows around it, and the pixels in fp32."""
    inner, width = cast(int, config["intermediate_size"]), cast(int, config["hidden_size"])
    patch, largest = cast(int, config["patch_size"]), cast(int, config["image_size"])
    rows, columns = (min(round(side / patch), largest // patch) for side in (geometry.height, geometry.width))
    per_token = (2 * inner + 3.64 * width) * dtype_bytes + 3 * patch**2 * _FP32
    return int(rows * columns * per_token)


def vae(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    """The decoder's last, full-resolution block; the image in fp32, twice while it is handed on."""
    base = cast("list[int]", config["block_out_channels"])[0]
    pixels = geometry.width * geometry.height
    return int(pixels * base * 6 * dtype_bytes) + 2 * pixels * 3 * _FP32
