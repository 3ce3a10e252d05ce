"""The official rollout, transcribed: what the cards' claims are measured with.

Source: Self-Forcing at 33593df3, `CausalInferencePipeline.inference` and `CausalWanModel`, over the same weights in the
modules of diffusers: a buffer of keys and values per layer, written and rolled in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_TABLE = 1024
"""Frames, rows and columns that rotary angles are tabulated for."""


class Pipeline:
    """Chunks in order, each denoised over the sigmas and then run once more, clean, to rewrite its keys and values.

    Latents are [1, F, C, H, W]. `settings` are the parameters of the card's loop.
    """

    def __init__(self, module: nn.Module, settings: Mapping[str, Any], sigmas: Sequence[float]) -> None:
        self._model = CausalModel(module, settings.get("window"), settings.get("sink", 0))
        self._chunk = settings["chunk"]
        self._alone = settings.get("first_frame", False)
        self._sigmas = torch.tensor(sigmas)
        self._times = self._sigmas * 1000
        self.sizes: tuple[int, ...] = ()
        self.buffers = self._model.buffers

    def rollout(
        self, noise: Tensor, text: Tensor, given: Tensor | None, renoise: Any
    ) -> Iterator[tuple[Tensor | None, Tensor]]:
        """Each forward's flow and the latent after it, as fv's steps have them: first the next chunk to work at."""
        before = 0 if given is None else given.shape[1]
        given_sizes, made_sizes = (
            self._cut(before, self._alone),
            self._cut(noise.shape[1], self._alone and not before),
        )
        self.sizes = (*given_sizes, *made_sizes)
        whole = noise if given is None else torch.cat([given, noise], dim=1)
        starts = [sum(self.sizes[:index]) for index in range(len(self.sizes) + 1)]
        chunks = [whole[:, start : start + size] for start, size in zip(starts, self.sizes, strict=False)]
        self._model.begin(text, whole)
        yield None, chunks[0]
        for index, start in enumerate(starts[:-1]):
            latent = chunks[index]
            if index >= len(given_sizes):
                for turn in range(len(self._sigmas)):
                    flow, latent = self._denoise(latent, turn, start, renoise)
                    yield flow, latent
                chunks[index] = latent
            rows = 1 if index < len(given_sizes) else latent.shape[1]
            flow = self._model(latent, torch.zeros(1, rows), start)
            last = index + 1 == len(chunks)
            yield flow, torch.cat(chunks, dim=1) if last else chunks[index + 1]

    def _denoise(self, latent: Tensor, turn: int, start: int, renoise: Any) -> tuple[Tensor, Tensor]:
        flow = self._model(latent, self._times[turn].expand(1, latent.shape[1]), start)
        x0 = (latent.double() - self._sigmas[turn].double() * flow.double()).to(flow.dtype)
        if turn + 1 == len(self._sigmas):
            return flow, x0
        sigma = self._sigmas[turn + 1].expand(x0.shape[1]).reshape(-1, 1, 1, 1).to(x0.device)
        flat = x0.flatten(0, 1)
        noise = renoise(flat).to(flat)
        return flow, ((1 - sigma) * flat + sigma * noise).type_as(noise).unflatten(0, x0.shape[:2])

    def _cut(self, frames: int, alone: bool) -> tuple[int, ...]:
        first = (1,) if alone and frames else ()
        assert (frames - len(first)) % self._chunk == 0, "the reference has no chunk that is cut short"
        return (*first, *(self._chunk,) * ((frames - len(first)) // self._chunk))


class CausalModel:
    """The official transformer's forward with caches, over the modules of diffusers' class."""

    def __init__(self, module: Any, window: int | None, sink: int) -> None:
        self._module = module
        self._window, self._sink = window, sink
        head_dim = module.config.attention_head_dim
        axis = 2 * (head_dim // 6)
        self._table = [_angles(dim) for dim in (head_dim - 2 * axis, axis, axis)]
        self.buffers: list[dict[str, Any]] = []
        self._text: list[tuple[Tensor, Tensor]] = []

    def begin(self, text: Tensor, clip: Tensor) -> None:
        """Makes empty buffers for a clip [1, F, C, H, W], and the prompt's keys and values."""
        config = self._module.config
        frame = clip.shape[3] // config.patch_size[1] * (clip.shape[4] // config.patch_size[2])
        shape = (
            1,
            (self._window or clip.shape[1]) * frame,
            config.num_attention_heads,
            config.attention_head_dim,
        )
        context = self._module.condition_embedder.text_embedder(text.to(self._module.dtype))
        self.buffers.clear()
        self._text.clear()
        for block in self._module.blocks:
            empty = {name: torch.zeros(shape, dtype=self._module.dtype, device=clip.device) for name in "kv"}
            self.buffers.append({**empty, "filled": 0, "seen": 0})
            key = _norm(block.attn2.norm_k, block.attn2.to_k(context)).view(1, -1, *shape[2:])
            self._text.append((key, block.attn2.to_v(context).view(1, -1, *shape[2:])))

    def __call__(self, latent: Tensor, times: Tensor, start: int) -> Tensor:
        module = self._module
        x = module.patch_embedding(latent.transpose(1, 2).to(module.dtype))
        frames, rows, columns = grid = tuple(x.shape[2:])
        x = x.flatten(2).transpose(1, 2).contiguous()
        e, e0 = self._time(times.to(x.device), x)
        turn = torch.cat(
            [
                self._table[0][start : start + frames].view(frames, 1, 1, -1).expand(*grid, -1),
                self._table[1][:rows].view(1, rows, 1, -1).expand(*grid, -1),
                self._table[2][:columns].view(1, 1, columns, -1).expand(*grid, -1),
            ],
            dim=-1,
        ).reshape(1, frames * rows * columns, 1, -1)
        for block, buffer, text in zip(module.blocks, self.buffers, self._text, strict=True):
            x = self._block(block, x, e0, turn.to(x.device), buffer, text, start * rows * columns)
        shift, scale = (module.scale_shift_table.unsqueeze(1) + e.unsqueeze(2)).chunk(2, dim=2)
        x = module.proj_out(module.norm_out(x).unflatten(1, (e.shape[1], -1)) * (1 + scale) + shift)
        patch = module.config.patch_size
        x = torch.einsum("fhwpqrc->cfphqwr", x.view(*grid, *patch, -1))
        sides = [cells * size for cells, size in zip(grid, patch, strict=True)]
        return x.reshape(1, -1, *sides).transpose(1, 2)

    def _time(self, times: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        half = self._module.config.freq_dim // 2
        position = times.flatten().type(torch.float64)
        phase = torch.outer(position, torch.pow(10000, -torch.arange(half).to(position).div(half)))
        embedder = self._module.condition_embedder
        e = embedder.time_embedder(torch.cat([phase.cos(), phase.sin()], dim=1).type_as(x))
        e0 = embedder.time_proj(F.silu(e)).unflatten(1, (6, -1))
        return e.unflatten(0, times.shape), e0.unflatten(0, times.shape)

    def _block(
        self,
        block: Any,
        x: Tensor,
        e0: Tensor,
        turn: Tensor,
        buffer: dict[str, Any],
        text: tuple[Tensor, Tensor],
        start: int,
    ) -> Tensor:
        e = (block.scale_shift_table.unsqueeze(1) + e0).chunk(6, dim=2)
        per_frame = (e0.shape[1], -1)
        y = (block.norm1(x).unflatten(1, per_frame) * (1 + e[1]) + e[0]).flatten(1, 2)
        heads = (block.attn1.heads, -1)
        q = _turned(_norm(block.attn1.norm_q, block.attn1.to_q(y)).unflatten(2, heads), turn)
        k = _turned(_norm(block.attn1.norm_k, block.attn1.to_k(y)).unflatten(2, heads), turn)
        self._write(buffer, k, block.attn1.to_v(y).unflatten(2, heads), start)
        end = buffer["filled"]
        y = block.attn1.to_out[0](_attention(q, buffer["k"][:, :end], buffer["v"][:, :end]))
        x = x + (y.unflatten(1, per_frame) * e[2]).flatten(1, 2)
        q = _norm(block.attn2.norm_q, block.attn2.to_q(block.norm2(x))).unflatten(2, heads)
        x = x + block.attn2.to_out[0](_attention(q, *text))
        y = block.ffn((block.norm3(x).unflatten(1, per_frame) * (1 + e[4]) + e[3]).flatten(1, 2))
        out: Tensor = x + (y.unflatten(1, per_frame) * e[5]).flatten(1, 2)
        return out

    def _write(self, buffer: dict[str, Any], k: Tensor, v: Tensor, start: int) -> None:
        """A chunk's first pass takes new places, rolling all but the sink to the left where there are none."""
        new, end, size = k.shape[1], start + k.shape[1], buffer["k"].shape[1]
        if end > buffer["seen"] and new + buffer["filled"] > size:
            sink = self._sink * (size // (self._window or 1))
            evicted = new + buffer["filled"] - size
            rolled = buffer["filled"] - evicted - sink
            for part in (buffer["k"], buffer["v"]):
                part[:, sink : sink + rolled] = part[:, sink + evicted : sink + evicted + rolled].clone()
            buffer["filled"] -= evicted
        buffer["filled"] += end - buffer["seen"]
        buffer["seen"] = end
        place = slice(buffer["filled"] - new, buffer["filled"])
        buffer["k"][:, place], buffer["v"][:, place] = k, v


def _angles(dim: int) -> Tensor:
    rates = 1.0 / torch.pow(10000, torch.arange(0, dim, 2).to(torch.float64).div(dim))
    phase = torch.outer(torch.arange(_TABLE), rates)
    return torch.polar(torch.ones_like(phase), phase)


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.to(torch.float64).reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(3).type_as(x)


def _norm(norm: Any, x: Tensor) -> Tensor:
    wide = x.float()
    weight: Tensor = norm.weight
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + norm.eps)).type_as(x) * weight


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    return mixed.transpose(1, 2).contiguous().flatten(2)
