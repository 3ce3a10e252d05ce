"""Evaluations of the joint model: latents of video, sound and action in, a velocity for each out.

Reference: diffusers 0.42.1, `Cosmos3OmniTransformer.forward`, with the prompt given as keys and values. Clean tokens,
which condition the others, come first in their modality; they get no timestep and a velocity of zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from diffusers import Cosmos3OmniTransformer
from torch import Tensor

from fv_cosmos3.pathways import Rows, generate, length
from fv_cosmos3.positions import Clock, grid_positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """One modality's part of the sequence.

    Args:
        hidden: [N, hidden]. positions: fp32 [3, N] counted from 0.
        clean: how many of the N, the first ones, are clean.
    """

    hidden: Tensor
    positions: Tensor
    clean: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Action latents fp32 [T, D], of which the first `clean` are given, and the embodiment they move."""

    latent: Tensor
    clean: int
    domain: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one evaluation is of.

    Args:
        timestep: 0 to 999. fps: of the video and the actions.
        video: latents fp32 [C, T, H, W], of which the first `clean` frames are given.
        sound: latents fp32 [D, T]; None without sound.
        compression: frames of the video per latent frame.
    """

    timestep: int
    fps: float
    video: Tensor
    clean: int
    sound: Tensor | None
    action: Action | None
    compression: int


def velocities(
    module: Cosmos3OmniTransformer, steps: Sequence[Step], texts: Sequence[Sequence[Tensor]], least: int = 1
) -> list[dict[str, Tensor]]:
    """Of each step the velocities by modality, each shaped as its latent, in the transformer's dtype.

    Steps of any sizes and modalities are packed; what comes before and after the layers is each step's own. `texts`
    are the prompts' keys and values, `least` the fewest rows of a product (`fv_core.loop.packing`).
    """
    parts = [_parts(module, step, length(text)) for step, text in zip(steps, texts, strict=True)]
    samples = [
        Rows(
            hidden=torch.cat([_timed(module, part, step.timestep) for part in own]),
            positions=torch.cat([part.positions for part in own], dim=1),
            past=text,
        )
        for step, text, own in zip(steps, texts, parts, strict=True)
    ]
    hidden = generate(module, samples, least)
    return [
        _velocity(module, step, rows.split([len(part.hidden) for part in own]))
        for step, rows, own in zip(steps, hidden, parts, strict=True)
    ]


def rows_of(module: Cosmos3OmniTransformer, step: Step) -> int:
    """Tokens of all modalities of a step."""
    sound = 0 if step.sound is None else step.sound.shape[1]
    return (
        math.prod(grid(module, step.video)) + sound + (0 if step.action is None else len(step.action.latent))
    )


def _parts(module: Cosmos3OmniTransformer, step: Step, prompt: int) -> list[Tokens]:
    """The modalities of a step, in their order; `prompt` is the number of tokens before them."""
    start = prompt + module.config.unified_3d_mrope_temporal_modality_margin
    parts = [_video_tokens(module, step, start)]
    if step.sound is not None:
        parts.append(_sound_tokens(module, step.sound, start))
    if step.action is not None:
        parts.append(_action_tokens(module, step, step.action, start))
    return parts


def _velocity(module: Cosmos3OmniTransformer, step: Step, parts: Sequence[Tensor]) -> dict[str, Tensor]:
    """The velocities from the hidden rows of each modality."""
    streams = iter(parts)
    found = {"video": _video_velocity(module, step, next(streams))}
    if step.sound is not None:
        found["sound"] = module.audio_proj_out(next(streams)).T
    if step.action is not None:
        found["action"] = _action_velocity(module, step.action, next(streams))
    return found


def _video_tokens(module: Cosmos3OmniTransformer, step: Step, start: int) -> Tokens:
    frames, height, width = grid(module, step.video)
    patches = _patched(step.video.to(module.dtype), module.config.latent_patch_size)
    clock = _clock(module, step.fps, step.compression, step.compression)
    return Tokens(
        hidden=module.proj_in(patches),
        positions=grid_positions(start, (frames, height, width), clock),
        clean=step.clean * height * width,
    )


def _sound_tokens(module: Cosmos3OmniTransformer, sound: Tensor, start: int) -> Tokens:
    packed = sound.T.to(module.dtype).contiguous()
    clock = _clock(module, float(module.config.sound_latent_fps), 1, 1)
    return Tokens(
        hidden=module.audio_proj_in(packed) + module.audio_modality_embed,
        positions=grid_positions(start, (len(packed), 1, 1), clock),
        clean=0,
    )


def _action_tokens(module: Cosmos3OmniTransformer, step: Step, action: Action, start: int) -> Tokens:
    latent = action.latent.to(module.dtype)
    hidden = module.action_proj_in(latent, _domains(action, len(latent), latent))
    clock = _clock(module, step.fps, 1, step.compression, first=1)
    return Tokens(
        hidden=hidden + module.action_modality_embed,
        positions=grid_positions(start, (len(latent), 1, 1), clock),
        clean=action.clean,
    )


def _timed(module: Cosmos3OmniTransformer, tokens: Tokens, timestep: int) -> Tensor:
    """The tokens, the noisy ones with the timestep added."""
    noisy = len(tokens.hidden) - tokens.clean
    if noisy == 0:
        return tokens.hidden
    # One row per noisy token, equal as they are: a product over another number of rows rounds differently.
    times = torch.full((noisy,), timestep, device=tokens.hidden.device) * module.config.timestep_scale
    dtype = next(module.time_embedder.parameters()).dtype
    embeds = module.time_embedder(module.time_proj(times).to(dtype)).to(tokens.hidden.dtype)
    return torch.cat([tokens.hidden[: tokens.clean], tokens.hidden[tokens.clean :] + embeds])


def _video_velocity(module: Cosmos3OmniTransformer, step: Step, hidden: Tensor) -> Tensor:
    _, frames, height, width = step.video.shape
    velocity = hidden.new_zeros(step.video.shape)
    noisy = frames - step.clean
    if noisy:
        _, rows, columns = grid(module, step.video)
        patches = module.proj_out(hidden[step.clean * rows * columns :])
        latent = _unpatched(patches, module.config.latent_patch_size, (noisy, rows, columns))
        velocity[:, step.clean :] = latent[:, :, :height, :width]
    return velocity


def _action_velocity(module: Cosmos3OmniTransformer, action: Action, hidden: Tensor) -> Tensor:
    noisy = hidden[action.clean :]
    velocity = hidden.new_zeros(action.latent.shape)
    if len(noisy):
        velocity[action.clean :] = module.action_proj_out(noisy, _domains(action, len(noisy), noisy))
    return velocity


def grid(module: Cosmos3OmniTransformer, video: Tensor) -> tuple[int, int, int]:
    """Tokens per axis of a latent [C, T, H, W]: a patch that an edge cuts counts whole."""
    _, frames, height, width = video.shape
    patch = module.config.latent_patch_size
    return frames, math.ceil(height / patch), math.ceil(width / patch)


def _patched(latent: Tensor, patch: int) -> Tensor:
    """[C, T, H, W] to [T * h * w, patch * patch * C], edges filled up with zeros."""
    channels, frames, height, width = latent.shape
    padding = (0, -width % patch, 0, -height % patch)
    padded = torch.nn.functional.pad(latent, padding) if any(padding) else latent
    cells = padded.reshape(channels, frames, padded.shape[2] // patch, patch, padded.shape[3] // patch, patch)
    return cells.permute(1, 2, 4, 3, 5, 0).reshape(-1, patch * patch * channels)


def _unpatched(patches: Tensor, patch: int, size: tuple[int, int, int]) -> Tensor:
    frames, rows, columns = size
    cells = patches.reshape(frames, rows, columns, patch, patch, -1)
    return cells.permute(5, 0, 1, 3, 2, 4).reshape(-1, frames, rows * patch, columns * patch)


def _domains(action: Action, count: int, like: Tensor) -> Tensor:
    return torch.full((count,), action.domain, dtype=torch.long, device=like.device)


def _clock(
    module: Cosmos3OmniTransformer, rate: float, compression: int, base_compression: int, first: int = 0
) -> Clock:
    config = module.config
    return Clock(
        rate=rate if config.enable_fps_modulation else None,
        compression=compression,
        base_rate=float(config.base_fps),
        base_compression=base_compression,
        first=first,
    )
