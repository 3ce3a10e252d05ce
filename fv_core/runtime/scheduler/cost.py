"""What a step will take, learned from the steps that were taken: the one currency of order, admission and estimates."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

LEARNS: Final = 0.1
"""What a measurement counts against those before it, once there are ten."""
GROWS: Final = 0.5
"""The part of a step that is taken to grow with its rows, where one size alone was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Mean seconds of `count` steps of so many rows."""

    rows: int
    seconds: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """All that is known of a key: `share` is the part of the steps that there could be that are usually taken."""

    means: tuple[Mean, ...]
    share: float = 1.0


class StepCost:
    """Mean seconds of the steps of one key, by number of rows. A size keeps its mean however long only others are
    measured. Whoever asks in every round keeps it: looking it up would cost more than asking it.

    Args:
        prior: seconds of one row before anything was measured.
    """

    def __init__(self, prior: Callable[[], float]) -> None:
        self._prior = prior
        self._means: dict[int, float] = {}
        self._counts: dict[int, int] = {}
        self._rows: list[int] = []
        self.share = 1.0
        """The part of the steps that there could be that are expected to be taken, 0 to 1."""

    @property
    def known(self) -> bool:
        """Whether a step was ever measured."""
        return bool(self._rows)

    def add(self, rows: int, seconds: float) -> None:
        """Takes in what a step took."""
        count = self._counts.get(rows, 0)
        # The first of all paid for what is prepared once, so the second takes its place.
        rate = 1.0 if count < 2 else max(LEARNS, 1 / count)
        mean = self._means.get(rows, seconds)
        self._means[rows] = mean + rate * (seconds - mean)
        self._counts[rows] = count + 1
        if count == 0:  # last of all, for another thread may look meanwhile
            self._rows.insert(bisect(self._rows, rows), rows)

    def seconds(self, rows: int) -> float:
        """Predicted seconds of a step of so many rows."""
        mean = self._means.get(rows)
        if mean is not None:
            return mean
        if not self._rows:
            return self._prior() * (1 - GROWS + GROWS * rows)
        above = bisect(self._rows, rows)
        if 0 < above < len(self._rows):
            low, high = self._rows[above - 1], self._rows[above]
            part = (rows - low) / (high - low)
            return (1 - part) * self._means[low] + part * self._means[high]
        nearest = self._rows[0 if above == 0 else -1]
        return self._means[nearest] * (1 - GROWS + GROWS * rows / nearest)

    def learned(self) -> Learned:
        means = (Mean(rows=r, seconds=self._means[r], count=self._counts[r]) for r in self._rows)
        return Learned(means=tuple(means), share=self.share)

    def restore(self, learned: Learned) -> None:
        """Begins from what another process learned."""
        self._means = {one.rows: one.seconds for one in learned.means}
        self._counts = {one.rows: one.count for one in learned.means}
        self._rows = sorted(self._means)
        self.share = learned.share


class CostModel:
    """Seconds of a step by key and rows.

    Args:
        prior: seconds of one row of a key that was never measured.
    """

    def __init__(self, prior: Callable[[Hashable], float]) -> None:
        self._prior = prior
        self._costs: dict[Hashable, StepCost] = {}

    def of(self, key: Hashable) -> StepCost:
        """What is known of a key, and will be."""
        cost = self._costs.get(key)
        return self._costs.setdefault(key, StepCost(partial(self._prior, key))) if cost is None else cost

    def observe(self, key: Hashable, rows: int, seconds: float) -> None:
        """Takes in what a step took."""
        self.of(key).add(rows, seconds)

    def ended(self, key: Hashable, share: float) -> None:
        """Takes in which part of the steps that there could be were taken."""
        cost = self.of(key)
        cost.share += LEARNS * (share - cost.share)

    def knows(self, key: Hashable) -> bool:
        """Whether a step of this key was ever measured."""
        return self.of(key).known

    def step_seconds(self, key: Hashable, rows: int) -> float:
        """Predicted seconds of a step of so many rows."""
        return self.of(key).seconds(rows)

    def restore(self, key: Hashable, learned: Learned) -> None:
        """Begins from what another process learned of a key, unless it was measured here."""
        if not self.knows(key):
            self.of(key).restore(learned)

    def learned(self) -> Iterator[tuple[Hashable, Learned]]:
        """What is known of each key that was measured, in the order in which they were met."""
        for key, cost in tuple(self._costs.items()):
            if cost.known:
                yield key, cost.learned()
