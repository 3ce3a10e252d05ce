"""The causal forward over the modules of diffusers' Wan transformer, on chunks of several clips side by side.

Tokens of all chunks are concatenated, so that norms and products see one long sequence however many frames each chunk
has; what depends on the chunk (rotary angles, modulation, what it attends) stays its own, and attention runs chunk by
chunk over as many keys as there are, because padded keys change bits.

Numerics of the reference (Self-Forcing at 33593df3, `CausalWanModel`), which differ from diffusers' own forward:
rotary angles as fp64 complex numbers at the absolute frame, the time sinusoid in fp64, RMSNorm written out, and a
modulation row per frame instead of one per clip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from diffusers import WanTransformer3DModel
from torch import Tensor, nn

Attend: TypeAlias = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From a layer and the chunk's own keys and values [tokens, heads, head_dim] to those that the chunk attends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What one clip brings to a forward.

    Args:
        latent: [C, F, H, W] in the transformer's dtype.
        times: timesteps [F], one per frame, or [1] for all of them; both are legal and round differently.
        start: absolute index of the chunk's first latent frame, from 0.
        text: keys and values of the prompt, as `text_keys_and_values` has them.
        attend: joins the past to the chunk's own keys, which are rotated already, and values.
    """

    latent: Tensor
    times: Tensor
    start: int
    text: Sequence[Tensor]
    attend: Attend


def rowwise_layers(module: WanTransformer3DModel) -> list[tuple[nn.Module, int]]:
    """One of each kind of layer that sees the rows of all samples at once, with the width of its rows."""
    block: Any = module.blocks[0]
    width = block.attn1.to_q.in_features
    layers = [(layer, width) for layer in (block.attn1.to_q, block.ffn, module.proj_out)]
    return [*layers, (module.condition_embedder.text_embedder, module.config.text_dim)]


def text_keys_and_values(module: WanTransformer3DModel, texts: Sequence[Tensor]) -> list[list[Tensor]]:
    """For each text [L, D] keys and values of every layer's cross-attention, [L, heads, head_dim], alternating."""
    lengths = [len(text) for text in texts]
    embedded = module.condition_embedder.text_embedder(torch.cat([*texts]).to(module.dtype))
    found: list[list[Tensor]] = [[] for _ in texts]
    for block in module.blocks:
        key = _heads(block.attn2, _rms_norm(block.attn2.norm_k, block.attn2.to_k(embedded)))
        value = _heads(block.attn2, block.attn2.to_v(embedded))
        for whole in (key, value):
            for own, part in zip(found, whole.split(lengths), strict=True):
                own.append(part.clone())  # a view would keep the others' alive
    return found


def velocities(
    module: WanTransformer3DModel, chunks: Sequence[Chunk], *, times_together: bool = False
) -> list[Tensor]:
    """The flow of each chunk, [C, F, H, W] in the transformer's dtype.

    Args:
        chunks: of frames with equally many tokens.
        times_together: whether the timesteps of all chunks are embedded at once, which is faster and rounds by how
            many there are.
    """
    patches = [module.patch_embedding(chunk.latent.unsqueeze(0)) for chunk in chunks]
    pack = _Pack(chunks, [tuple(one.shape[2:]) for one in patches])
    hidden = torch.cat([one[0].flatten(1).transpose(0, 1) for one in patches])
    time, modulation = pack.times(module, hidden, together=times_together)
    angles = pack.angles(module.config.attention_head_dim, hidden.device)
    for layer, block in enumerate(module.blocks):
        hidden = _block(block, hidden, modulation, angles, pack, layer)
    shift, scale = (module.scale_shift_table + time.unsqueeze(1)).chunk(2, dim=1)
    out = module.proj_out(_modulated(module.norm_out(hidden), shift, scale))
    return pack.unpatched(out, module.config.patch_size)


class _Pack:
    """Chunks in one sequence: where each lies in it, and what is computed for each by itself.

    `grids` are frames, rows and columns of tokens.
    """

    def __init__(self, chunks: Sequence[Chunk], grids: Sequence[tuple[int, ...]]) -> None:
        self._chunks, self._grids = chunks, grids
        self._tokens = [frames * height * width for frames, height, width in grids]

    def times(
        self, module: WanTransformer3DModel, hidden: Tensor, *, together: bool
    ) -> tuple[Tensor, Tensor]:
        """Time embedding [frames, D] and its projection [frames, 6, D] of all frames."""
        each = [chunk.times for chunk in self._chunks]
        made = [_time(module, times, hidden) for times in ([torch.cat(each)] if together else each)]
        rows = [len(times) for times in each]
        time, projected = (torch.cat(parts).split(rows) for parts in zip(*made, strict=True))
        return self._framed(time), self._framed(projected)

    def _framed(self, parts: Sequence[Tensor]) -> Tensor:
        rows = zip(parts, self._grids, strict=True)
        return torch.cat([part.expand(frames, *part.shape[1:]) for part, (frames, _, _) in rows])

    def angles(self, head_dim: int, device: torch.device) -> Tensor:
        placed = zip(self._chunks, self._grids, strict=True)
        return torch.cat([rotary(head_dim, chunk.start, *grid, device=device) for chunk, grid in placed])

    def attend(self, layer: int, *own: Tensor) -> Tensor:
        """Self-attention, from queries, keys and values [tokens, heads, head_dim] to [tokens, D]."""
        parts = zip(self._chunks, *(one.split(self._tokens) for one in own), strict=True)
        return torch.cat(
            [_attention(query, *chunk.attend(layer, key, value)) for chunk, query, key, value in parts]
        )

    def read(self, layer: int, query: Tensor) -> Tensor:
        """Cross-attention of queries [tokens, heads, head_dim] to each chunk's prompt: [tokens, D]."""
        parts = zip(self._chunks, query.split(self._tokens), strict=True)
        return torch.cat([_attention(part, *chunk.text[2 * layer : 2 * layer + 2]) for chunk, part in parts])

    def unpatched(self, out: Tensor, patch: Sequence[int]) -> list[Tensor]:
        parts = zip(out.split(self._tokens), self._grids, strict=True)
        return [_unpatched(part, grid, patch) for part, grid in parts]


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
    """Time embedding [T, D] of timesteps [T] and its projection [T, 6, D]."""
    half = module.config.freq_dim // 2
    position = times.to(torch.float64)
    speeds = torch.pow(10000, -torch.arange(half).to(position).div(half))
    sinusoid = torch.outer(position, speeds)
    waves = torch.cat([torch.cos(sinusoid), torch.sin(sinusoid)], dim=1).type_as(hidden)
    embedder = module.condition_embedder
    time = embedder.time_embedder(waves)
    return time, embedder.time_proj(embedder.act_fn(time)).unflatten(1, (6, -1))


def _block(block: Any, hidden: Tensor, modulation: Tensor, angles: Tensor, pack: _Pack, layer: int) -> Tensor:
    rows = block.scale_shift_table + modulation
    shift, scale, gate, ff_shift, ff_scale, ff_gate = rows.chunk(6, dim=1)
    query, key, value = _rotated_heads(block.attn1, _modulated(block.norm1(hidden), shift, scale), angles)
    mixed = block.attn1.to_out[0](pack.attend(layer, query, key, value))
    hidden = hidden + _gated(mixed, gate)
    query = _heads(block.attn2, _rms_norm(block.attn2.norm_q, block.attn2.to_q(block.norm2(hidden))))
    hidden = hidden + block.attn2.to_out[0](pack.read(layer, query))
    return hidden + _gated(block.ffn(_modulated(block.norm3(hidden), ff_shift, ff_scale)), ff_gate)


def _rotated_heads(attn: Any, hidden: Tensor, angles: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query = _rotated(_heads(attn, _rms_norm(attn.norm_q, attn.to_q(hidden))), angles)
    key = _rotated(_heads(attn, _rms_norm(attn.norm_k, attn.to_k(hidden))), angles)
    return query, key, _heads(attn, attn.to_v(hidden))


def _attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    q, k, v = (one.unsqueeze(0).transpose(1, 2) for one in (query, keys, values))
    return F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).flatten(1)


def _heads(attn: Any, projected: Tensor) -> Tensor:
    split: Tensor = projected.unflatten(-1, (attn.heads, -1))
    return split


def _rms_norm(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    wide = x.float()
    assert norm.eps is not None
    return (wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + norm.eps)).type_as(x) * norm.weight


def _rotated(x: Tensor, angles: Tensor) -> Tensor:
    turned = torch.view_as_complex(x.to(torch.float64).unflatten(-1, (-1, 2))) * angles
    return torch.view_as_real(turned).flatten(-2).type_as(x)


def _modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return (_by_frame(x, shift) * (1 + scale) + shift).flatten(0, 1)


def _gated(x: Tensor, gate: Tensor) -> Tensor:
    return (_by_frame(x, gate) * gate).flatten(0, 1)


def _by_frame(x: Tensor, rows: Tensor) -> Tensor:
    """[tokens, D] as [frames, tokens / frames, D], so that each frame's row [frames, 1, D] meets its own tokens."""
    split: Tensor = x.unflatten(0, (len(rows), -1))
    return split


def _unpatched(out: Tensor, grid: Sequence[int], patch: Sequence[int]) -> Tensor:
    cells = out.view(*grid, *patch, -1)
    frames, height, width = (cells_along * size for cells_along, size in zip(grid, patch, strict=True))
    whole = torch.einsum("fhwpqrc->cfphqwr", cells).reshape(-1, frames, height, width)
    return whole.contiguous()  # never a view, which would keep the others' alive
