"""The policies that others use, kept to be measured against."""

from __future__ import annotations

from collections.abc import Sequence

from fv_core.runtime.scheduler.contract import C, Candidate, Join
from fv_core.runtime.scheduler.joining import alone


class Fifo:
    """First come, first served, each to its end."""

    def __init__(self, join: Join = alone) -> None:
        self._join = join

    def next(self, candidates: Sequence[C], now: float) -> Sequence[C]:
        return self._join(sorted(candidates, key=lambda one: (one.arrived, one.id)))

    def ran(self, jobs: Sequence[Candidate], seconds: float) -> None:
        """Looks at nothing."""


class RoundRobin(Fifo):
    """A step of each in turn."""

    def __init__(self, join: Join = alone) -> None:
        super().__init__(join)
        self._turns = 0
        self._last: dict[str, int] = {}

    def next(self, candidates: Sequence[C], now: float) -> Sequence[C]:
        self._last = {one.id: self._last.get(one.id, -1) for one in candidates}
        return self._join(sorted(candidates, key=lambda one: (self._last[one.id], one.arrived, one.id)))

    def ran(self, jobs: Sequence[Candidate], seconds: float) -> None:
        self._turns += 1
        for job in jobs:
            self._last[job.id] = self._turns


class StaticBatch:
    """First come, first served, in batches that are formed from those who wait and stay together to their end."""

    def __init__(self, join: Join) -> None:
        self._join = join
        self._batch: frozenset[str] = frozenset()

    def next(self, candidates: Sequence[C], now: float) -> Sequence[C]:
        members = [one for one in candidates if one.id in self._batch]
        if not members:
            members = self._join(sorted(candidates, key=self._place))
            self._batch = frozenset(one.id for one in members)
        # Members are at one step but for those that were given more of them; these wait for nobody.
        return [one for one in members if one.key == members[0].key]

    def ran(self, jobs: Sequence[Candidate], seconds: float) -> None:
        """The batch is what it was formed of."""

    def _place(self, one: Candidate) -> tuple[float, str]:
        return (one.arrived, one.id)


class Shortest(StaticBatch):
    """The job with the least cost first, to its end, with those that join it as it starts: shortest job first."""

    def _place(self, one: Candidate) -> tuple[float, str]:
        return (one.cost, one.id)
