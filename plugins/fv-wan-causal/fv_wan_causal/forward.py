"""The causal forward over the modules of diffusers' Wan transformer: a chunk attends what it is given of the past.

Numerics of the reference (Self-Forcing at 33593df3, `CausalWanModel`), which differ from diffusers' own forward:
rotary angles as fp64 complex numbers at the absolute frame, the time sinusoid in fp64, RMSNorm written out, and a
modulation row per frame instead of one per clip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from diffusers import WanTransformer3DModel
from torch import Tensor, nn

Attend: TypeAlias = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From a layer and the chunk's own keys and values [tokens, heads, head_dim] to those that the chunk attends."""

_Join: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""`Attend` of one layer."""


def text_keys_and_values(module: WanTransformer3DModel, text: Tensor) -> list[Tensor]:
    """Keys and values of every layer's cross-attention, [L, heads, head_dim] each, alternating; text [L, D]."""
    embedded = module.condition_embedder.text_embedder(text.unsqueeze(0).to(module.dtype))
    found = []
    for block in module.blocks:
        key = _heads(block.attn2, _rms_norm(block.attn2.norm_k, block.attn2.to_k(embedded)))
        found += [key[0], _heads(block.attn2, block.attn2.to_v(embedded))[0]]
    return found


def velocity(
    module: WanTransformer3DModel,
    latent: Tensor,
    times: Tensor,
    *,
    start: int,
    text: Sequence[Tensor],
    attend: Attend,
) -> Tensor:
    """The flow of one chunk.

    Args:
        latent: [C, F, H, W] in the transformer's dtype.
        times: timesteps [F], one per frame, or [1] for all of them; both are legal and round differently.
        start: absolute index of the chunk's first latent frame, from 0.
        text: what `text_keys_and_values` returned.
        attend: joins the past to the chunk's own keys, which are rotated already, and values.

    Returns:
        [C, F, H, W] in the transformer's dtype.
    """
    patches = module.patch_embedding(latent.unsqueeze(0))
    grid = patches.shape[2:]
    hidden = patches.flatten(2).transpose(1, 2).contiguous()
    time, modulation = _time(module, times, hidden)
    angles = rotary(module.config.attention_head_dim, start, *grid, device=hidden.device)
    for layer, block in enumerate(module.blocks):
        own_text = text[2 * layer : 2 * layer + 2]
        hidden = _block(block, hidden, modulation, angles, own_text, partial(attend, layer))
    shift, scale = (module.scale_shift_table.unsqueeze(1) + time.unsqueeze(2)).chunk(2, dim=2)
    out = module.proj_out(_modulated(module.norm_out(hidden), shift, scale))
    return _unpatched(out, grid, module.config.patch_size)


def rotary(
    head_dim: int, start: int, frames: int, height: int, width: int, *, device: torch.device
) -> Tensor:
    """Rotations as complex128 [frames * height * width, 1, head_dim / 2], from absolute frame `start`."""
    spatial = 2 * (head_dim // 6)
    along = [
        _axis(head_dim - 2 * spatial, start, frames, device).view(frames, 1, 1, -1),
        _axis(spatial, 0, height, device).view(1, height, 1, -1),
        _axis(spatial, 0, width, device).view(1, 1, width, -1),
    ]
    whole = torch.cat([axis.expand(frames, height, width, -1) for axis in along], dim=-1)
    return whole.reshape(frames * height * width, 1, -1)


def _axis(dim: int, start: int, length: int, device: torch.device) -> Tensor:
    speeds = 1.0 / torch.pow(10000, torch.arange(0, dim, 2, dtype=torch.float64, device=device).div(dim))
    angles = torch.outer(torch.arange(start, start + length, device=device), speeds)
    return torch.polar(torch.ones_like(angles), angles)


def _time(module: WanTransformer3DModel, times: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Time embedding [1, T, D] and its projection [1, T, 6, D]."""
    half = module.config.freq_dim // 2
    position = times.to(torch.float64)
    speeds = torch.pow(10000, -torch.arange(half).to(position).div(half))
    sinusoid = torch.outer(position, speeds)
    waves = torch.cat([torch.cos(sinusoid), torch.sin(sinusoid)], dim=1).type_as(hidden)
    embedder = module.condition_embedder
    time = embedder.time_embedder(waves)
    projected = embedder.time_proj(embedder.act_fn(time)).unflatten(1, (6, -1))
    return time.unsqueeze(0), projected.unsqueeze(0)


def _block(
    block: Any, hidden: Tensor, modulation: Tensor, angles: Tensor, text: Sequence[Tensor], attend: _Join
) -> Tensor:
    rows = block.scale_shift_table.unsqueeze(1) + modulation
    shift, scale, gate, ff_shift, ff_scale, ff_gate = rows.chunk(6, dim=2)
    mixed = _self_attention(block.attn1, _modulated(block.norm1(hidden), shift, scale), angles, attend)
    hidden = hidden + _gated(mixed, gate)
    hidden = hidden + _cross_attention(block.attn2, block.norm2(hidden), text)
    return hidden + _gated(block.ffn(_modulated(block.norm3(hidden), ff_shift, ff_scale)), ff_gate)


def _self_attention(attn: Any, hidden: Tensor, angles: Tensor, attend: _Join) -> Tensor:
    query = _rotated(_heads(attn, _rms_norm(attn.norm_q, attn.to_q(hidden))), angles)
    key = _rotated(_heads(attn, _rms_norm(attn.norm_k, attn.to_k(hidden))), angles)
    keys, values = attend(key[0], _heads(attn, attn.to_v(hidden))[0])
    return _attention(attn, query, keys, values)


def _cross_attention(attn: Any, hidden: Tensor, text: Sequence[Tensor]) -> Tensor:
    query = _heads(attn, _rms_norm(attn.norm_q, attn.to_q(hidden)))
    return _attention(attn, query, *text)


def _attention(attn: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    mixed = F.scaled_dot_product_attention(
        query.transpose(1, 2), keys.unsqueeze(0).transpose(1, 2), values.unsqueeze(0).transpose(1, 2)
    )
    out: Tensor = attn.to_out[0](mixed.transpose(1, 2).flatten(2))
    return out


def _heads(attn: Any, projected: Tensor) -> Tensor:
    split: Tensor = projected.unflatten(2, (attn.heads, -1))
    return split


def _rms_norm(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    wide = x.float()
    assert norm.eps is not None
    return (wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + norm.eps)).type_as(x) * norm.weight


def _rotated(x: Tensor, angles: Tensor) -> Tensor:
    turned = torch.view_as_complex(x.to(torch.float64).unflatten(-1, (-1, 2))) * angles
    return torch.view_as_real(turned).flatten(3).type_as(x)


def _modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return (_framed(x, shift) * (1 + scale) + shift).flatten(1, 2)


def _gated(x: Tensor, gate: Tensor) -> Tensor:
    return (_framed(x, gate) * gate).flatten(1, 2)


def _framed(x: Tensor, rows: Tensor) -> Tensor:
    """[1, tokens, D] as [1, T, tokens / T, D], so that each of the T modulation rows meets its own tokens."""
    split: Tensor = x.unflatten(1, (rows.shape[1], -1))
    return split


def _unpatched(out: Tensor, grid: Sequence[int], patch: Sequence[int]) -> Tensor:
    cells = out.view(*grid, *patch, -1)
    frames, height, width = (cells_along * size for cells_along, size in zip(grid, patch, strict=True))
    return torch.einsum("fhwpqrc->cfphqwr", cells).reshape(-1, frames, height, width)
