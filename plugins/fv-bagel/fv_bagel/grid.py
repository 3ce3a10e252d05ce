"""Grids: latents packed into tokens, cells numbered in a stored table, and images made to fit the vision tower.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `prepare_vae_latent`, `decode_image` and `ImageTransform`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

_MOST_PIXELS = 14 * 14 * 9 * 1024


def pack(grid: Tensor, patch: int) -> Tensor:
    """[C, H, W] to tokens [H / patch * W / patch, patch * patch * C], row by row; a token is (p, q, c)."""
    channels, height, width = grid.shape
    split = grid.reshape(channels, height // patch, patch, width // patch, patch)
    return split.permute(1, 3, 2, 4, 0).reshape(-1, patch * patch * channels)


def unpack(tokens: Tensor, patch: int, rows: int) -> Tensor:
    """The inverse of `pack`; `rows` is the number of token rows."""
    channels = tokens.shape[1] // patch**2
    split = tokens.reshape(rows, -1, patch, patch, channels).permute(4, 0, 2, 1, 3)
    return split.reshape(channels, rows * patch, -1).contiguous()  # kernels round by the order in memory


def cells(rows: int, columns: int, side: int) -> Tensor:
    """Numbers of the cells of a grid's upper left part in a table that has `side` cells to a row, int64."""
    return (torch.arange(rows)[:, None] * side + torch.arange(columns)).flatten()


def pixels(image: Tensor) -> Tensor:
    """uint8 [H, W, 3] to fp32 [3, H, W] in [-1, 1]."""
    return image.permute(2, 0, 1).float() / 127.5 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Sizes that a tower takes: sides are multiples of `stride`, the shorter one from `smallest`, the longer one to
    `largest`, in pixels. An image is resized bicubically where its own size is none of them.
    """

    stride: int
    smallest: int
    largest: int

    def size(self, width: int, height: int) -> tuple[int, int]:
        """The width and height that an image is seen at."""
        scale = max(min(self.largest / max(width, height), 1.0), self.smallest / min(width, height))
        fitted = self._scaled(width, height, scale)
        if fitted[0] * fitted[1] > _MOST_PIXELS:
            fitted = self._scaled(*fitted, _MOST_PIXELS / (fitted[0] * fitted[1]))
        if max(fitted) > self.largest:
            fitted = self._scaled(*fitted, self.largest / max(fitted))
        return fitted

    def seen(self, image: Tensor) -> Tensor:
        """uint8 [H, W, 3] to uint8 [h, w, 3]."""
        height, width = image.shape[:2]
        size = self.size(width, height)
        if size == (width, height):
            return image
        resized = Image.fromarray(image.cpu().numpy()).resize(size, Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(resized)).to(image.device)

    def _scaled(self, width: int, height: int, scale: float) -> tuple[int, int]:
        return self._on_grid(round(width * scale)), self._on_grid(round(height * scale))

    def _on_grid(self, side: int) -> int:
        return max(self.stride, round(side / self.stride) * self.stride)
