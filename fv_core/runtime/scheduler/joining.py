"""Who takes a step along with the job whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fv_core.runtime.scheduler.contract import C, StepTimes

PAYS: Final = 0.85
"""A row joins where the larger forward takes at most this share of the two apart."""
STRETCH: Final = PAYS / (1 - PAYS)
"""So a step that others join lasts at most this many times what it takes alone: t(B + 1) <= 0.85 (t(B) + t(1))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Lets jobs of the first one's key join in rank order while it pays: t(B + b) <= 0.85 (t(B) + t(b))."""

    times: StepTimes
    max_rows: int = 16

    def __call__(self, ranked: Sequence[C]) -> list[C]:
        first, *others = ranked
        rows, together = first.rows, [first]
        seconds = self.times.step_seconds(first.key, rows)
        for other in others:
            if other.key != first.key or rows + other.rows > self.max_rows:
                continue
            larger = self.times.step_seconds(first.key, rows + other.rows)
            if larger > PAYS * (seconds + self.times.step_seconds(other.key, other.rows)):
                break
            together.append(other)
            rows, seconds = rows + other.rows, larger
        return together


def alone(ranked: Sequence[C]) -> list[C]:
    """Nobody joins."""
    return [ranked[0]]
