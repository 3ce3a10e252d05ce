"""How the tiny model begins: what its transformer looks at before it has learned, and the codec its autoencoder learns.

Both leave an ordinary Wan checkpoint. docs/tiny-model.md tells what each of them gains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

WORDS: Final = (
    *("circle", "square", "triangle"),
    *("red", "green", "blue", "yellow", "purple", "orange", "cyan", "pink"),
    *("right", "left", "down", "up"),
    *("black", "white"),
)
"""What it is trained to draw, of the words of the data set; the recipes name the same."""
CODEC_SEED: Final = 1
_SCENES: Final = 960
_BLOCK: Final = (4, 16, 16)
"""Frames, rows and columns of a latent cell."""


def initialise(modules: Mapping[str, nn.Module], seed: int) -> None:
    """Fills the transformer and the text encoder, by component id, for a training from nothing."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        initialise_transformer(modules["transformer"], generator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            text: Any = modules["text"]
            for part in text.modules():
                part._is_hf_initialized = False
            text.apply(text._init_weights)


def initialise_transformer(transformer: Any, generator: torch.Generator) -> None:
    """Xavier-uniform matrices, zero biases, open gates, an input layer of orthonormal columns tied to the output layer,
    and self-attention heads that look at one neighbour each.
    """
    for name, parameter in transformer.named_parameters():
        if parameter.ndim == 2 and name.endswith("weight"):
            nn.init.xavier_uniform_(parameter, generator=generator)
        elif name.endswith("bias"):
            parameter.zero_()
    for block in transformer.blocks:
        block.scale_shift_table[:, [2, 5]] += 1
    embedding = transformer.patch_embedding.weight  # [dim, channels, 1, 1, 1]
    basis, _ = torch.linalg.qr(torch.randn(embedding.flatten(1).shape, generator=generator))
    embedding.copy_(basis.view_as(embedding))
    transformer.proj_out.weight.copy_(0.5 * basis.T)
    _look_at_neighbours(transformer, generator)


def _look_at_neighbours(transformer: Any, generator: torch.Generator) -> None:
    """Biases of queries and keys that, turned by rotary positions, meet at a fixed offset in time, rows and columns.

    Rotary positions touch only queries and keys, so from noise alone no token knows where it is: borders and the order
    of time are found through heads like these. Every fourth head is left without.
    """
    heads, width = transformer.config.num_attention_heads, transformer.config.attention_head_dim
    side = 2 * (width // 6)
    sizes = (width - 2 * side, side, side)
    scale = 2 * math.sqrt(2)
    for block in transformer.blocks:
        attention = block.attn1
        for head in (head for head in range(heads) if head % 4 != 3):
            offsets = torch.randint(-1, 2, (3,), generator=generator).tolist()
            for axis, size in enumerate(sizes):
                for pair in range(2):
                    phase = 2 * math.pi * float(torch.rand((), generator=generator))
                    turned = phase + offsets[axis] * 10000 ** (-2 * pair / size)
                    at = head * width + sum(sizes[:axis]) + 2 * pair
                    for shift, wave in enumerate((math.cos, math.sin)):
                        attention.to_k.bias[at + shift] = scale * wave(phase)
                        attention.to_q.bias[at + shift] = scale * wave(turned)
                    attention.norm_q.weight[at : at + 2] = 2.0
                    attention.norm_k.weight[at : at + 2] = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCodec:
    """Principal components of cells of 4 frames and 16x16 pixels, each scaled to unit variance.

    Args:
        mean: [pixels of a cell]. basis: [pixels of a cell, channels]. std: [channels].
    """

    mean: Tensor
    basis: Tensor
    std: Tensor

    def encode(self, clips: Tensor) -> Tensor:
        """Latents [B, C, f, h, w] of clips [B, 3, F, height, width] in [-1, 1]; the first frame stands for four."""
        found = (cells(clips) - self.mean) @ self.basis / self.std
        return found.permute(0, 4, 1, 2, 3).contiguous()


def cells(clips: Tensor) -> Tensor:
    """Clips as cells [B, f, h, w, pixels]; the first frame is repeated, so that all cells are alike."""
    frames, rows, columns = _BLOCK
    clips = torch.cat([clips[:, :, :1].repeat(1, 1, frames - 1, 1, 1), clips], dim=2)
    batch, channels, time, height, width = clips.shape
    parts = clips.reshape(
        batch, channels, time // frames, frames, height // rows, rows, width // columns, columns
    )
    return parts.permute(0, 2, 4, 6, 3, 5, 7, 1).flatten(4)


def teacher(clips: Tensor) -> Tensor:
    """The latents that the tiny autoencoder is to give: those of a linear codec of the scenes."""
    return codec(channels=24).encode(clips)


@lru_cache(maxsize=1)
def codec(channels: int) -> LinearCodec:
    """The codec of `_SCENES` drawn scenes, fitted in closed form in some seconds."""
    from fv_core.training.data.scenes import Split, combinations, draw, render

    pool, second, mean, count = combinations(Split.SEEN, WORDS), None, None, 0
    for index in range(_SCENES):
        rng = np.random.Generator(np.random.Philox(key=[CODEC_SEED, index]))
        frames = torch.from_numpy(render(draw(pool[index % len(pool)], rng), 64, 9))
        found = cells(frames.permute(3, 0, 1, 2).unsqueeze(0).float() / 127.5 - 1).flatten(0, 3)
        second = found.T @ found if second is None else second.addmm_(found.T, found)
        mean = found.sum(0) if mean is None else mean + found.sum(0)
        count += len(found)
    assert second is not None and mean is not None
    mean = mean / count
    values, vectors = torch.linalg.eigh((second / count - torch.outer(mean, mean)).double())
    basis = vectors.flip(1)[:, :channels]
    basis = basis * torch.sign(basis.gather(0, basis.abs().argmax(0, keepdim=True)))
    return LinearCodec(mean=mean, basis=basis.float(), std=values.flip(0)[:channels].sqrt().float())
