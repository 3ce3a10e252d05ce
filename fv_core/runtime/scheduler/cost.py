"""What a step will take, learned from the steps that were taken: the one currency of order, admission and estimates."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Hashable
from typing import Final

LEARNS: Final = 0.1
"""What a measurement counts against those before it."""
GROWS: Final = 0.5
"""The part of a step that is taken to grow with its rows, where one size alone was measured."""


class _Sizes:
    """Mean seconds by number of rows. A size keeps its mean however long only others are measured."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}
        self._rows: list[int] = []

    def add(self, rows: int, seconds: float) -> None:
        if rows not in self._means:
            self._rows.insert(bisect(self._rows, rows), rows)
            self._means[rows] = seconds
        self._means[rows] += LEARNS * (seconds - self._means[rows])

    def at(self, rows: int) -> float:
        if rows in self._means:
            return self._means[rows]
        above = bisect(self._rows, rows)
        if 0 < above < len(self._rows):
            low, high = self._rows[above - 1], self._rows[above]
            part = (rows - low) / (high - low)
            return (1 - part) * self._means[low] + part * self._means[high]
        nearest = self._rows[0 if above == 0 else -1]
        return self._means[nearest] * (1 - GROWS + GROWS * rows / nearest)


class CostModel:
    """Seconds of a step by key and rows.

    Args:
        prior: seconds of one row of a key that was never measured.
    """

    def __init__(self, prior: Callable[[Hashable], float]) -> None:
        self._prior = prior
        self._sizes: dict[Hashable, _Sizes] = {}

    def observe(self, key: Hashable, rows: int, seconds: float) -> None:
        """Takes in what a step took."""
        self._sizes.setdefault(key, _Sizes()).add(rows, seconds)

    def step_seconds(self, key: Hashable, rows: int) -> float:
        """Predicted seconds of a step of so many rows."""
        sizes = self._sizes.get(key)
        return self._prior(key) * (1 - GROWS + GROWS * rows) if sizes is None else sizes.at(rows)
