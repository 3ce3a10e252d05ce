"""Sigma grids of flow matching: an unshifted grid by rule, then the flow shift.

Sources: diffusers 0.42.1, `UniPCMultistepScheduler.set_timesteps` with flow sigmas (rule "diffusers>=0.37"); the
official Wan 2.1 FlowUniPC scheduler at commit 9737cba (rule "wan-official").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fv_core.card import SigmaRule

TRAIN_TIMESTEPS = 1000
_WAN_SIGMA_MAX = float(np.float32(0.999))
_BELOW_ONE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A run's noise levels.

    Args:
        sigmas: float32 [steps + 1] on the CPU, descending, the last one 0; what the solver uses.
        timesteps: what the model sees, from the float64 sigma; see `timestep`.
    """

    sigmas: Tensor
    timesteps: tuple[int, ...]


def schedule(rule: SigmaRule, steps: int, shift: float) -> Schedule:
    """The schedule of `steps` >= 1 steps at flow shift `shift` > 0: `shift * s / (1 + (shift - 1) * s)`."""
    grid = _unshifted(rule, steps)
    sigmas = shift * grid / (1 + (shift - 1) * grid)
    if abs(sigmas[0] - 1) < _BELOW_ONE:
        sigmas[0] -= _BELOW_ONE  # the solver takes log(1 - sigma)
    timesteps = tuple(timestep(float(sigma)) for sigma in sigmas)
    return Schedule(sigmas=torch.from_numpy(np.append(sigmas, 0.0).astype(np.float32)), timesteps=timesteps)


def timestep(sigma: float) -> int:
    """What the model sees of a noise level, in training as in serving: `1000 * sigma`, truncated."""
    return int(sigma * TRAIN_TIMESTEPS)


def _unshifted(rule: SigmaRule, steps: int) -> NDArray[np.float64]:
    match rule:
        case SigmaRule.DIFFUSERS:
            return np.linspace(1, 1 / TRAIN_TIMESTEPS, steps + 1)[:-1]
        case SigmaRule.WAN_OFFICIAL:
            return np.linspace(_WAN_SIGMA_MAX, 0, steps + 1)[:-1]
