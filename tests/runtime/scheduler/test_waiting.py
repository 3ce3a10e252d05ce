"""Nobody waits beyond the bound that is printed, while no more work is let in at once than is stated."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fv_core.request import Priority
from fv_core.runtime.scheduler.cost import CostModel
from fv_core.runtime.scheduler.joining import STRETCH, Joining, alone
from fv_core.runtime.scheduler.remaining import LeastRemaining, Patience

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from simulation import NOISE, Kind, SimulatedJob, arrivals, simulate

ADMITTED_S = 60.0
MARGIN = 1 + NOISE
"""What is predicted and what is true differ by less over a job, and by less than five times the noise in a step."""
SHORT = Kind(name="short", share=0.98, steps=10, step_s=0.1, priority=Priority.INTERACTIVE)
LONG = Kind(name="long", share=0.02, steps=50, step_s=0.4, priority=Priority.BATCH)


@pytest.mark.parametrize("batching", [False, True], ids=["alone", "batching"])
def test_nobody_waits_beyond_the_printed_bound_under_admitted_load(
    batching: bool, soak: bool, record_property: Callable[[str, object], None]
) -> None:
    """Interactive jobs alone keep the device busy, and long ones of the lowest class live of their promotion."""
    bounds, waits = waited(Patience(), batching=batching, count=1_000_000 if soak else 8_000)
    record_property("jobs", sum(map(len, waits.values())))
    for name, seconds in waits.items():
        record_property(f"{name}: bound in seconds", round(bounds[name], 1))
        record_property(f"{name}: longest of all in seconds", round(max(seconds), 1))
        assert max(seconds) <= bounds[name]


def test_without_promotion_the_bound_does_not_hold() -> None:
    bounds, waits = waited(Patience(costs=1e9), batching=False, count=8_000, promised=Patience())
    assert max(waits["long"]) > bounds["long"]


def waited(
    patience: Patience, *, batching: bool, count: int, promised: Patience | None = None
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """By kind, the bound and the seconds from arrival to end of `count` jobs or more."""
    costs = CostModel(prior=lambda key: 0.2)
    scheduler = LeastRemaining(Joining(times=costs) if batching else alone, patience=patience)
    waits: dict[str, list[float]] = {"short": [], "long": []}
    simulate(
        arrivals((SHORT, LONG), 1.3, count + count // 8, random.Random(1)),
        scheduler,
        costs,
        random.Random(0),
        admitted=ADMITTED_S,
        ended=lambda job: waits[job.kind.name].append(job.response),
    )
    assert sum(map(len, waits.values())) >= count
    longest_step = LONG.step_s * (1 + 5 * NOISE) * (STRETCH if batching else 1)
    return {
        kind.name: (promised or patience).bound(
            MARGIN * kind.seconds, admitted=MARGIN * ADMITTED_S, longest_step=longest_step
        )
        for kind in (SHORT, LONG)
    }, waits


class Exact(random.Random):
    """Steps take what they are predicted to."""

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        return mu


KINDS = st.builds(
    Kind,
    name=st.uuids().map(str),
    share=st.sampled_from((0.05, 1.0)),
    steps=st.integers(1, 30),
    step_s=st.sampled_from((0.01, 0.1, 1.0)),
    priority=st.sampled_from(Priority),
)


@settings(max_examples=60)
@given(
    st.lists(KINDS, min_size=2, max_size=4), st.sampled_from((0.9, 1.5, 3.0)), st.integers(0, 2**16),
    st.sampled_from((0.1, 0.25, 0.5)), st.sampled_from((0.5, 3.0, 20.0)), st.booleans(),
)  # fmt: skip
def test_the_bound_holds_for_whatever_comes(
    kinds: Sequence[Kind], load: float, seed: int, share: float, costs: float, batching: bool
) -> None:
    patience = Patience(costs=costs, share=share)
    step_s = {kind.name: kind.step_s for kind in kinds}
    model = CostModel(prior=lambda key: step_s[str(key)])
    admitted = max(kind.seconds for kind in kinds) + 5.0
    longest_step = max(step_s.values()) * (STRETCH if batching else 1)

    def ended(job: SimulatedJob) -> None:
        assert job.response <= patience.bound(job.kind.seconds, admitted=admitted, longest_step=longest_step)

    scheduler = LeastRemaining(Joining(times=model) if batching else alone, patience=patience)
    stream = arrivals(kinds, load, 300, random.Random(seed))
    simulate(stream, scheduler, model, Exact(), admitted=admitted, ended=ended)
