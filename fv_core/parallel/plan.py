"""The axes along which a run may be spread over devices, and a plan that gives each a degree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Axis(StrEnum):
    """A dimension of a device mesh.

    dp: whole requests. cfgp: the two branches of guidance. sp: the sequence, by exchanging heads (Ulysses).
    ring: the sequence, by passing keys and values on. tp: the matrices. pp_patch: patches in a pipeline that reuses
    activations of the step before.
    """

    DP = "dp"
    CFGP = "cfgp"
    SP = "sp"
    RING = "ring"
    TP = "tp"
    PP_PATCH = "pp_patch"


UNIMPLEMENTED: Final = frozenset({Axis.RING, Axis.TP, Axis.PP_PATCH})
"""Axes that this core cannot run at any degree above 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPlan:
    """How many devices each axis takes; an axis that is not named takes one."""

    axes: Mapping[Axis, int] = field(default_factory=dict)

    def degree(self, axis: Axis) -> int:
        return self.axes.get(axis, 1)

    def __str__(self) -> str:
        return " x ".join(f"{axis}={degree}" for axis, degree in self.axes.items()) or "one device"
