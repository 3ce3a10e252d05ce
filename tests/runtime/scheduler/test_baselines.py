"""The policies that fv's own is measured against do what their names say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fv_core.request import Priority
from fv_core.runtime.scheduler.baselines import Fifo, RoundRobin, Shortest, StaticBatch
from fv_core.runtime.scheduler.joining import alone


@dataclass(slots=True, kw_only=True)
class Job:
    """A candidate that takes `left` steps of a second."""

    id: str
    left: int
    arrived: float = 0.0
    served: float = 0.0
    priority: Priority = Priority.STANDARD
    key: str = "one"
    rows: int = 1

    @property
    def cost(self) -> float:
        return self.left + self.served

    @property
    def remaining(self) -> float:
        return self.left


def everybody(ranked: Sequence[Any]) -> list[Any]:
    return list(ranked)


def turns(scheduler: Any, jobs: list[Job]) -> str:
    """Who took each step, in one letter; those who shared one in brackets."""
    now, taken = 0.0, []
    while going := [job for job in jobs if job.left and job.arrived <= now]:
        chosen = scheduler.next(going, now)
        scheduler.ran(chosen, 1.0)
        for job in chosen:
            job.left, job.served = job.left - 1, job.served + 1
        now += 1
        names = "".join(job.id for job in chosen)
        taken.append(names if len(names) == 1 else f"({names})")
    return "".join(taken)


def three() -> list[Job]:
    return [Job(id="a", left=3), Job(id="b", left=1, arrived=1.0), Job(id="c", left=2, arrived=1.0)]


def test_first_come_first_served() -> None:
    assert turns(Fifo(), three()) == "aaabcc"


def test_the_shortest_first_but_none_is_interrupted() -> None:
    jobs = [Job(id="a", left=3), Job(id="b", left=2, arrived=1.0), Job(id="c", left=1, arrived=1.0)]
    assert turns(Shortest(alone), jobs) == "aaacbb"


def test_the_shortest_are_joined_as_they_start_and_not_later() -> None:
    jobs = [Job(id="a", left=3), Job(id="b", left=2), Job(id="c", left=1), Job(id="d", left=1, arrived=1.0)]

    def two(ranked: Sequence[Any]) -> list[Any]:
        return list(ranked)[:2]

    assert turns(Shortest(two), jobs) == "(cb)b(da)aa"


def test_a_step_of_each_in_turn() -> None:
    assert turns(RoundRobin(), [Job(id="a", left=3), Job(id="b", left=1), Job(id="c", left=2)]) == "abcaca"


def test_a_static_batch_stays_together_and_who_comes_later_waits_for_its_end() -> None:
    jobs = [Job(id="a", left=3), Job(id="b", left=1), Job(id="c", left=1, arrived=1.0)]
    assert turns(StaticBatch(everybody), jobs) == "(ab)aac"


def test_members_at_another_step_do_not_join() -> None:
    jobs = [Job(id="a", left=1), Job(id="b", left=1, key="other")]
    assert turns(StaticBatch(everybody), jobs) == "ab"
