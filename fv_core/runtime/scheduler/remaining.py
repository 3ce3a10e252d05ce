"""fv's own order: least remaining work first, weighed by priority, with a bound on how long anybody waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fv_core.request import Priority
from fv_core.runtime.scheduler.contract import C, Candidate, Join
from fv_core.runtime.scheduler.joining import STRETCH, alone

WEIGHTS: Final[Mapping[Priority, float]] = MappingProxyType(
    {Priority.INTERACTIVE: 4.0, Priority.STANDARD: 1.0, Priority.BATCH: 0.25}
)
"""How much a second of a class is worth: remaining seconds are divided by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When a job that waits is promoted, and what promoted work gets.

    Args:
        costs: it has waited longer than this many times its own cost.
        share: of the device's seconds, while others wait; promoted work goes in the order of its promotion.
    """

    costs: float = 20.0
    share: float = 0.25

    def bound(self, cost: float, *, admitted: float, longest_step: float) -> float:
        """The most seconds from a job's arrival to its end, where no more than `admitted` seconds of work are let in.

        Until it is promoted it waits `costs` times its own cost and a step that is not interrupted, and is served, with
        others, for at most `STRETCH` times its cost. Of what was admitted no more than all is ahead of it then, itself
        included. Promoted work lags behind its `share` of the seconds by a step at most.
        """
        before = (self.costs + STRETCH) * cost + longest_step
        return before + (admitted + longest_step) / self.share


class LeastRemaining:
    """Ranks by remaining seconds over the weight of the class, so that what can leave soon leaves first."""

    def __init__(self, join: Join = alone, *, patience: Patience | None = None) -> None:
        self._join = join
        self._patience = patience or Patience()
        self._promoted: dict[str, None] = {}
        self._credit = 0.0
        self._contended = False
        self._turn: str | None = None

    def next(self, candidates: Sequence[C], now: float) -> Sequence[C]:
        self._promote(candidates, now)
        ranked = sorted(candidates, key=rank)
        self._turn = None
        self._contended = 0 < len(self._promoted) < len(candidates)
        if self._promoted and (self._credit >= 0 or not self._contended):
            self._turn = next(iter(self._promoted))
            return [one for one in ranked if one.id == self._turn]  # alone: joining would lengthen its steps
        return self._join(ranked)

    def ran(self, jobs: Sequence[Candidate], seconds: float) -> None:
        """While others wait, promoted work earns its share of all seconds and pays for those that it takes itself."""
        if not self._promoted:
            self._credit = 0.0
        if not self._contended:
            return
        self._credit += self._patience.share * seconds
        if self._turn is not None:  # a promoted job that goes first by its rank pays nothing
            self._credit -= seconds

    def _promote(self, candidates: Sequence[Candidate], now: float) -> None:
        if self._promoted:
            here = {one.id for one in candidates}
            self._promoted = {job: None for job in self._promoted if job in here}
        costs = self._patience.costs
        late = [one for one in candidates if now - one.arrived - one.served > costs * one.cost]
        for one in sorted(late, key=lambda one: (one.arrived, one.id)):
            self._promoted.setdefault(one.id)


def rank(one: Candidate) -> tuple[float, float, str]:
    """Who leaves sooner ranks first; of equals who came first."""
    return (one.remaining / WEIGHTS[one.priority], one.arrived, one.id)
