"""fv's order: least remaining work first, classes weighed, and nobody waits beyond the bound that it prints."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fv_core.request import Priority
from fv_core.runtime.scheduler.cost import CostModel
from fv_core.runtime.scheduler.joining import Joining, alone
from fv_core.runtime.scheduler.remaining import LeastRemaining, Patience

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from scheduling import MIXES
from simulation import NOISE, SimulatedJob, arrivals, simulate

ADMITTED = 120.0


@dataclass(slots=True, kw_only=True)
class Waits:
    """A candidate as a test states it."""

    id: str
    remaining: float
    cost: float = 1.0
    priority: Priority = Priority.STANDARD
    arrived: float = 0.0
    served: float = 0.0
    key: str = "one"
    rows: int = 1


def ids(chosen: Any) -> list[str]:
    return [one.id for one in chosen]


def test_the_least_remaining_goes_first_and_classes_weigh_the_seconds() -> None:
    scheduler = LeastRemaining()
    jobs = [Waits(id="long", remaining=9.0), Waits(id="short", remaining=3.0)]
    assert ids(scheduler.next(jobs, 0.0)) == ["short"]
    jobs.append(Waits(id="shown", remaining=10.0, priority=Priority.INTERACTIVE))
    jobs.append(Waits(id="overnight", remaining=1.0, priority=Priority.BATCH))
    assert ids(scheduler.next(jobs, 0.0)) == ["shown"]
    assert ids(scheduler.next([jobs[0], jobs[3]], 0.0)) == ["overnight"]


def test_equal_jobs_go_in_the_order_of_their_arrival() -> None:
    jobs = [Waits(id="b", remaining=1.0, arrived=2.0), Waits(id="c", remaining=1.0, arrived=1.0)]
    assert ids(LeastRemaining().next(jobs, 3.0)) == ["c"]


def test_who_waited_twenty_times_its_cost_gets_a_quarter_of_the_seconds() -> None:
    scheduler = LeastRemaining()
    jobs = [Waits(id="old", remaining=5.0, cost=5.0), Waits(id="new", remaining=1.0, cost=9.0)]
    assert ids(scheduler.next(jobs, 100.0)) == ["new"]
    turns = []
    for step in range(40):
        chosen = scheduler.next(jobs, 101.0 + step)
        scheduler.ran(chosen, 1.0)
        turns += ids(chosen)
    assert turns.count("old") == 10
    assert ids(scheduler.next(jobs[:1], 200.0)) == ["old"]


def test_service_is_no_waiting() -> None:
    jobs = [Waits(id="old", remaining=5.0, cost=5.0, served=60.0), Waits(id="new", remaining=1.0)]
    assert ids(LeastRemaining().next(jobs, 150.0)) == ["new"]


def test_a_promoted_job_runs_alone() -> None:
    scheduler = LeastRemaining(Joining(times=CostModel(prior=lambda key: 1.0)))
    jobs = [Waits(id="old", remaining=5.0), Waits(id="new", remaining=4.0, arrived=30.0)]
    assert ids(scheduler.next(jobs, 10.0)) == ["new", "old"]
    assert ids(scheduler.next(jobs, 30.0)) == ["old"]


@pytest.mark.parametrize("batching", [False, True], ids=["alone", "batching"])
def test_nobody_waits_beyond_the_bound_under_admitted_load(batching: bool, soak: bool) -> None:
    late = overdue(Patience(), batching=batching, count=1_000_000 if soak else 10_000)
    assert late == 0


def test_without_promotion_the_bound_does_not_hold() -> None:
    assert overdue(Patience(costs=1e9), batching=False, count=10_000, promised=Patience()) > 0


def overdue(patience: Patience, *, batching: bool, count: int, promised: Patience | None = None) -> int:
    """How many jobs end later than `promised` says, where the short ones alone are more than the device can take."""
    mix = (replace(MIXES["A"][0], share=0.98), replace(MIXES["A"][1], share=0.02))
    costs, rng = CostModel(prior=lambda key: 0.2), random.Random(0)
    scheduler = LeastRemaining(Joining(times=costs) if batching else alone, patience=patience)
    margin = 1 + NOISE  # what is predicted and what is true differ by less
    bounds = {
        kind.name: (promised or patience).bound(
            margin * kind.seconds, admitted=margin * ADMITTED, longest_step=0.4 * (1 + 5 * NOISE)
        )
        for kind in mix
    }
    late: list[SimulatedJob] = []

    def ended(job: SimulatedJob) -> None:
        if job.response > bounds[job.kind.name]:
            late.append(job)

    stream = arrivals(mix, 2.0, count, random.Random(1))
    simulate(stream, scheduler, costs, rng, admitted=ADMITTED, ended=ended)
    return len(late)
