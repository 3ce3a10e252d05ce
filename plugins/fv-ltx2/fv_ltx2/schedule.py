"""Noise levels: the fixed lists of the distilled weights, and the resolution-dependent shift of the base weights.

Source: diffusers 0.42.1, `FlowMatchEulerDiscreteScheduler.set_timesteps` as `LTX2Pipeline` calls it. The timestep that
the model sees is `1000 * sigma` in fp32, never truncated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TRAIN_TIMESTEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The more video tokens, the more of the steps at high noise.

    Args:
        base: log shift at `base_tokens`. most: log shift at `most_tokens`; linear in between and beyond.
        terminal: the last sigma before 0, in (0, 1): the grid is stretched to end there.
    """

    base: float = 0.95
    most: float = 2.05
    base_tokens: int = 1024
    most_tokens: int = 4096
    terminal: float = 0.1


def fixed(sigmas: Sequence[float]) -> Tensor:
    """The given sigmas, descending in (0, 1], and a final 0: float32 [steps + 1]."""
    return _closed(np.array(sigmas).astype(np.float32))


def shifted(steps: int, tokens: int, shift: Shift) -> Tensor:
    """`steps` >= 2 sigmas from 1 to `shift.terminal`, and a final 0: float32 [steps + 1].

    Args:
        tokens: number of video tokens.
    """
    slope = (shift.most - shift.base) / (shift.most_tokens - shift.base_tokens)
    mu = tokens * slope + (shift.base - slope * shift.base_tokens)
    grid = np.linspace(1.0, 1 / steps, steps).astype(np.float32)
    sigmas = math.exp(mu) / (math.exp(mu) + (1 / grid - 1) ** 1.0)
    noiseless = 1 - sigmas
    return _closed(1 - noiseless / (noiseless[-1] / (1 - shift.terminal)))


def timesteps(sigmas: Tensor) -> tuple[float, ...]:
    """What the model sees at each step of `fixed` or `shifted`: float32 numbers, exact as floats."""
    return tuple((sigmas[:-1] * TRAIN_TIMESTEPS).tolist())


def _closed(sigmas: NDArray[np.float32]) -> Tensor:
    return torch.cat([torch.from_numpy(sigmas).to(torch.float32), torch.zeros(1)])
