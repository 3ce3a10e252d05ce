"""Predicts what each component needs beside its weights, in bytes.

The factors are live-tensor peaks counted on the meta device for one sample, attention taken as fused: 832x480 and
1280x720, one to 189 frames, both models (`tests/test_memory.py` counts again and bounds the error). Prompts are
reckoned at 1024 tokens each, sound at 24 frames per second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, cast

from fv_core.card import Geometry, ModelCard
from fv_core.request import ResolvedRequest, TaskType
from fv_cosmos3.embodiments import canvas
from fv_cosmos3.prompts import action_prompt, clip_conversation, clip_prompt, conversation

_PROMPTS, _PROMPT_TOKENS = 2, 1024
_FRAMES_PER_SECOND = 24
_FP32 = 4
_TURN = 32  # tokens around a turn of a conversation, at most
_REREAD = (
    3  # tokens that one that was written comes to when its text is read, at most: broken text has three bytes
)
_ACTS: Final = (TaskType.POLICY, TaskType.FORWARD_DYNAMICS, TaskType.INVERSE_DYNAMICS)


def caches(card: ModelCard, request: ResolvedRequest, dtype_bytes: int) -> dict[str, int]:
    """Keys and values of the prompts, and of what is written; features of the autoencoder, which are kept in fp32 and
    larger on the way out than on the way in. A token is a byte at least.
    """
    config = card.components["transformer"].config
    layers, heads, head_dim = (
        _int(config, name) for name in ("num_hidden_layers", "num_key_value_heads", "head_dim")
    )
    token = 2 * layers * heads * head_dim * dtype_bytes
    writes = request.task is TaskType.QA or bool(request.params.get("think", False))
    asked = _tokens(conversation(request.prompt)) + int(request.params.get("max_tokens", 0))
    taken = {"paged_kv": asked * token} if writes else {}
    if request.task is TaskType.QA:
        return taken
    acts = request.task in _ACTS
    size = canvas(str(request.params["tier"]), request.size) if acts else request.size
    features = _decoder_features(card.geometry(size, request.frames), card.components["vae"].config)
    return {**taken, "text_kv": sum(_prompts(request)) * token, "stream": features}


def _prompts(request: ResolvedRequest) -> Iterator[int]:
    """The most tokens of the prompt and, under guidance, of the negative one."""
    size, frames, fps = request.size, request.frames, request.fps
    if request.task in _ACTS:
        on = canvas(str(request.params["tier"]), size)
        caption = action_prompt(request.prompt, str(request.params["view"]), on, frames, fps)
        turns = [conversation(caption), conversation(request.negative_prompt)]
    else:
        texts = {False: request.prompt, True: request.negative_prompt}
        turns = [
            clip_conversation(clip_prompt(text, size, frames, fps, negative=negative), frames)
            for negative, text in texts.items()
        ]
    thought = _REREAD * int(request.params["max_tokens"]) if request.params.get("think", False) else 0
    yield _tokens(turns[0]) + thought
    if request.guidance > 1.0:
        yield _tokens(turns[1])


def _tokens(turns: list[dict[str, str]]) -> int:
    return sum(len(turn["content"].encode()) + _TURN for turn in turns)


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


def _decoder_features(geometry: Geometry, config: Mapping[str, object]) -> int:
    """Bytes that the decoder keeps between latent frames: what each causal convolution saw of its last two frames.

    diffusers 0.42.1 `WanDecoder3d`: one convolution in, two residual blocks in the middle, a level of blocks for each
    multiplier, whose upsampling in time is a convolution too, one out.
    """
    base = _int(config, "decoder_base_dim" if config.get("decoder_base_dim") else "base_dim")
    blocks, multiples = _int(config, "num_res_blocks"), cast("list[int]", config["dim_mult"])
    in_time = [*reversed(cast("list[bool]", config["temperal_downsample"])), False]
    widths = [base * multiple for multiple in (multiples[-1], *reversed(multiples))]
    _, frames, height, width = geometry.latent
    cells = height * width
    kept = (_int(config, "z_dim") + 4 * widths[0]) * cells
    for level, (before, after) in enumerate(pairwise(widths)):
        into = before // 2 if level and not config.get("is_residual") else before
        kept += (into + (2 * blocks + 1 + in_time[level]) * after) * cells
        cells *= 4 if level < len(multiples) - 1 else 1
    return min(frames, 2) * (kept + widths[-1] * cells) * _FP32 + len("Rep")  # the mark of a first frame
