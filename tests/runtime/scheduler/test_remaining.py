"""fv's order: least remaining work first, classes weighed, and who waited long is promoted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fv_core.request import Priority
from fv_core.runtime.scheduler.cost import CostModel
from fv_core.runtime.scheduler.joining import Joining
from fv_core.runtime.scheduler.remaining import LeastRemaining


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


def test_what_promoted_work_took_while_nobody_waited_is_not_held_against_it() -> None:
    scheduler = LeastRemaining()
    old, new = Waits(id="old", remaining=5.0), Waits(id="new", remaining=1.0, arrived=1000.0)
    for step in range(200):
        scheduler.ran(scheduler.next([old], 100.0 + step), 1.0)
    turns = []
    for step in range(40):
        chosen = scheduler.next([old, new], 1000.0 + step / 10)
        scheduler.ran(chosen, 1.0)
        turns += ids(chosen)
    assert turns.count("old") == 10
