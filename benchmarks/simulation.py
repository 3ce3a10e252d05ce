"""A device in simulated time, driven by the real scheduler classes and the real, learning cost model.

Load is defined on solo seconds: arrivals per second times the mean seconds of a job that runs alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fv_core.request import Priority
from fv_core.runtime.scheduler.contract import Scheduler
from fv_core.runtime.scheduler.cost import CostModel

FIXED = 0.4
"""Part of a step that does not grow with its rows, where steps are shared; the tiny shape's is about that."""
NOISE = 0.1
"""Spread of the seconds of a step, as a share of their mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of job: how often, how many steps, the seconds of a step alone, and the bytes it holds once started."""

    name: str
    share: float
    steps: int
    step_s: float
    bytes: int = 0
    priority: Priority = Priority.STANDARD

    @property
    def seconds(self) -> float:
        return self.steps * self.step_s


@dataclass(slots=True)
class SimulatedJob:
    """A `Candidate`; `cost` (as it arrived) and `remaining` are what the cost model says, not what is true."""

    id: str
    kind: Kind
    arrived: float
    costs: CostModel
    rows: int = 1
    served: float = 0.0
    left: int = field(init=False)
    cost: float = field(init=False)
    ended: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.kind.steps
        self.cost = self.remaining

    @property
    def priority(self) -> Priority:
        return self.kind.priority

    @property
    def key(self) -> Hashable:
        return self.kind.name

    @property
    def remaining(self) -> float:
        return self.left * self.costs.step_seconds(self.kind.name, 1)

    @property
    def response(self) -> float:
        return self.ended - self.arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Seconds that the device worked, those that the jobs take alone, and the most bytes of started jobs at once."""

    busy: float
    work: float
    peak_bytes: int

    @property
    def inflation(self) -> float:
        return self.busy / self.work


def arrivals(
    mix: Sequence[Kind], load: float, count: int, rng: random.Random
) -> Iterator[tuple[float, Kind]]:
    """A Poisson stream of `count` jobs."""
    rate, shares, now = (
        load / sum(kind.share * kind.seconds for kind in mix),
        [kind.share for kind in mix],
        0.0,
    )
    for _ in range(count):
        now += rng.expovariate(rate)
        yield now, rng.choices(mix, shares)[0]


def simulate(
    stream: Iterable[tuple[float, Kind]],
    scheduler: Scheduler,
    costs: CostModel,
    rng: random.Random,
    *,
    admitted: float = math.inf,
    ended: Callable[[SimulatedJob], None] = lambda job: None,
) -> Simulated:
    """Runs the stream to its end.

    Args:
        admitted: seconds of work, as predicted, that are let in at once; who comes beyond is turned away.
        ended: told of each job as it ends, where a long run has no use for all of them at the end.
    """
    coming = iter(SimulatedJob(f"{i:07}", kind, at, costs) for i, (at, kind) in enumerate(stream))
    coming_next = next(coming, None)
    going: list[SimulatedJob] = []
    now, busy, work, held, peak = 0.0, 0.0, 0.0, 0, 0
    while going or coming_next:
        if not going and coming_next:
            now = max(now, coming_next.arrived)
        while coming_next and coming_next.arrived <= now:
            if coming_next.cost + sum(job.remaining for job in going) <= admitted:
                going.append(coming_next)
                work += coming_next.kind.seconds
            coming_next = next(coming, None)
        if not going:
            continue
        together = scheduler.next(going, now)
        kind = together[0].kind
        held += sum(job.kind.bytes for job in together if not job.served)
        peak = max(peak, held)
        seconds = kind.step_s * (FIXED + (1 - FIXED) * len(together)) * max(0.1, rng.gauss(1.0, NOISE))
        now, busy = now + seconds, busy + seconds
        costs.observe(kind.name, len(together), seconds)
        scheduler.ran(together, seconds)
        for job in together:
            job.served += seconds
            job.left -= 1
            if not job.left:
                job.ended = now
                held -= job.kind.bytes
                ended(job)
        going = [job for job in going if job.left]
    return Simulated(busy=busy, work=work, peak_bytes=peak)
