"""Classifier-free guidance: which branches a step computes, and how they are combined.

Paper: Ho and Salimans 2022, arXiv 2207.12598. Reference: diffusers 0.42.1, `WanPipeline.__call__`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from torch import Tensor

COND: Final = "cond"
UNCOND: Final = "uncond"


class Guidance(StrEnum):
    """How the branches of a step are computed.

    classic: one forward per branch, conditional first.
    joint: both branches in one forward, unconditional first.
    """

    CLASSIC = "classic"
    JOINT = "joint"


def branches(policy: Guidance, guided: bool) -> tuple[str, ...]:
    """The branches of a step in the order they are computed."""
    if not guided:
        return (COND,)
    return (COND, UNCOND) if policy is Guidance.CLASSIC else (UNCOND, COND)


def combine(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    """`uncond + scale * (cond - uncond)`, in the dtype of the velocities."""
    return uncond + scale * (cond - uncond)
