"""Positions on the three axes (time, height, width) of the joint sequence, fp32 [3, N].

Text counts 0, 1, 2 .. on all axes. Vision, sound and action lie side by side in time: each starts `margin` after the
end of the text, and a second has the same length in all of them. Reference: diffusers 0.42.1, `Cosmos3OmniPipeline`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How fast tokens of a modality pass in time.

    Args:
        rate: tokens' source frames per second; None counts tokens without regard to time.
        compression: source frames per token. base_rate, base_compression: those at which a token is one step.
        first: index of the first token: actions lie between frames and start at 1.
    """

    rate: float | None
    compression: int
    base_rate: float
    base_compression: int
    first: int = 0


def text_positions(start: int, count: int) -> Tensor:
    """Positions of `count` text tokens from `start` on."""
    return torch.arange(start, start + count, dtype=torch.float32).expand(3, -1)


def grid_positions(start: int, grid: tuple[int, int, int], clock: Clock) -> Tensor:
    """Positions of a [time, height, width] grid of tokens that begins at `start`, time slowest."""
    frames, height, width = grid
    time = torch.arange(frames, dtype=torch.float32) + clock.first
    if clock.rate is not None and frames > 1:
        # The reference's own order of operations: another one rounds differently.
        time = time / (clock.rate / clock.compression) * (clock.base_rate / clock.base_compression) + start
    else:
        time = time + start
    rows, columns = torch.arange(height, dtype=torch.float32), torch.arange(width, dtype=torch.float32)
    return torch.stack(torch.meshgrid(time, rows, columns, indexing="ij")).flatten(1)
