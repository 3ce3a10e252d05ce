"""The formulas of training as pure functions: what the proofs test and the trainer calls.

Notation: noise level s in [0, 1], `x_s = (1 - s) x0 + s eps`, velocity `v = eps - x0`. All of it in fp32 or fp64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def shifted(u: Tensor, shift: float) -> Tensor:
    """The flow shift `k u / (1 + (k - 1) u)`, k > 0: of uniform u, noise levels with the CDF `s / (k - (k - 1) s)`."""
    return shift * u / (1 + (shift - 1) * u)


def unshifted(s: Tensor, shift: float) -> Tensor:
    """The inverse of `shifted`."""
    return s / (shift - (shift - 1) * s)


def shifted_uniform(u: Tensor, *, shift: float, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Noise levels of a shifted uniform density, limited to [low, high] by renormalising it.

    Args:
        u: uniform in [0, 1), any shape.
    """
    begin, end = unshifted(u.new_tensor([low, high]), shift)
    return shifted(begin + u * (end - begin), shift)


def logit_normal(u: Tensor, *, mean: float, std: float, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Noise levels whose logit is normal (Esser et al. 2024, "Scaling rectified flow transformers", section 3.1).

    Limited to [low, high] by renormalising the density. `u` is uniform in [0, 1), any shape.
    """
    begin, end = torch.special.ndtr((torch.logit(u.new_tensor([low, high])) - mean) / std)
    inside = (begin + u * (end - begin)).clamp(torch.finfo(u.dtype).tiny, 1 - torch.finfo(u.dtype).eps)
    return torch.sigmoid(mean + std * torch.special.ndtri(inside))


def stratified(u: Tensor, numbers: Sequence[int], total: int) -> Tensor:
    """One uniform number of each of `total` equal parts of [0, 1), by the sample's number: `(number + u) / total`."""
    return (torch.tensor(numbers, dtype=u.dtype) + u) / total


def noised(x0: Tensor, eps: Tensor, s: Tensor) -> Tensor:
    """`(1 - s) x0 + s eps`; s [B] and x0, eps [B, ...]."""
    level = _per_sample(s, x0)
    return (1 - level) * x0 + level * eps


def velocity_target(x0: Tensor, eps: Tensor) -> Tensor:
    """`eps - x0`, the derivative of `noised` by s."""
    return eps - x0


def cosmap_weight(s: Tensor) -> Tensor:
    """`2 / (pi (1 - 2 s + 2 s^2))` (Esser et al. 2024, section 3.1)."""
    return 2 / (math.pi * (1 - 2 * s + 2 * s * s))


def flow_losses(
    velocity: Tensor, target: Tensor, weight: Tensor | None = None, valid: Sequence[int | None] = ()
) -> Tensor:
    """What each sample comes to: the mean of `weight (velocity - target)^2` over its elements that count.

    Args:
        velocity: [B, C, F, ...]. target: of the same shape.
        weight: [B]; None is 1.
        valid: the frames from the first on that count, by sample; None: all. The others get no gradient.

    Returns:
        [B]
    """
    squares = (velocity - target).square()
    if any(frames is not None for frames in valid):
        losses = torch.stack([one[:, :frames].mean() for one, frames in zip(squares, valid, strict=True)])
    else:
        losses = squares.flatten(1).mean(1)
    return losses if weight is None else losses * weight


def learning_rate(step: int, *, steps: int, warmup: int = 0, decay: float = 0.0) -> float:
    """The factor of the learning rate at optimizer step `step`, from 0: linear warm-up, constant, linear to 0.

    Args:
        steps: of the run. warmup: steps until the factor is 1.
        decay: the share of the run, at its end, over which the rate falls to 0, in [0, 1].
    """
    rising = (step + 1) / warmup if step < warmup else 1.0
    falling = (steps - step) / (decay * steps) if decay * steps > steps - step else 1.0
    return min(rising, falling)


@torch.no_grad()
def ema_update(average: Sequence[Tensor], values: Sequence[Tensor], decay: float) -> None:
    """`average <- decay average + (1 - decay) values`, in place, after an optimizer step."""
    torch._foreach_lerp_(list(average), list(values), 1 - decay)


def _per_sample(s: Tensor, of: Tensor) -> Tensor:
    return s.view(-1, *(1,) * (of.ndim - 1))
