"""Who waits how long, by policy: fv's order against the usual ones, on a simulated device with the real classes.

Mix A: 90 % of jobs take 1 s, 10 % take 20 s. Mix C: half take 1 s, half take 5 s. Load is seconds of jobs alone, over
seconds. Nothing is known of a kind before it has run. A started job holds bytes as its steps take seconds: a tenth of a
second for one GiB.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from report import Goal, arguments, report, settled
from simulation import Kind, Simulated, SimulatedJob, arrivals, simulate

from fv_core.runtime.scheduler.baselines import Fifo, RoundRobin, Shortest, StaticBatch
from fv_core.runtime.scheduler.contract import Join, Scheduler
from fv_core.runtime.scheduler.cost import CostModel
from fv_core.runtime.scheduler.joining import Joining, alone
from fv_core.runtime.scheduler.remaining import LeastRemaining

MIXES = {
    "A": (
        Kind(name="short", share=0.9, steps=10, step_s=0.1, bytes=2**30),
        Kind(name="long", share=0.1, steps=50, step_s=0.4, bytes=4 * 2**30),
    ),
    "C": (
        Kind(name="short", share=0.5, steps=10, step_s=0.1, bytes=2**30),
        Kind(name="long", share=0.5, steps=25, step_s=0.2, bytes=2 * 2**30),
    ),
}
LOADS = (0.8, 0.95, 1.1)
POLICIES: dict[str, Callable[[CostModel, bool], Scheduler]] = {
    "fifo": lambda costs, batching: Fifo(),
    "fifo + static batch": lambda costs, batching: StaticBatch(_join(costs, batching)),
    "shortest job first": lambda costs, batching: Shortest(_join(costs, batching)),
    "round robin": lambda costs, batching: RoundRobin(_join(costs, batching)),
    "fv": lambda costs, batching: LeastRemaining(_join(costs, batching)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Seconds from arrival to end; `slowdown` is that over the job's own seconds."""

    mean: float
    short_p95: float
    long_p95: float
    long_max: float
    slowdown_p95: float
    inflation: float
    peak_gib: float


def _join(costs: CostModel, batching: bool) -> Join:
    return Joining(times=costs) if batching else alone


def one_run(policy: str, mix: str, load: float, seed: int, *, batching: bool, count: int) -> Figures:
    rng = random.Random(seed)
    costs = CostModel(prior=lambda key: 0.2)  # knows nothing of the kinds before it has seen them
    jobs: list[SimulatedJob] = []
    stream = list(
        arrivals(MIXES[mix], load, count, rng)
    )  # drawn first, so that every policy meets the same one
    done = simulate(stream, POLICIES[policy](costs, batching), costs, rng, ended=jobs.append)
    return measured(done, jobs)


def measured(done: Simulated, jobs: Sequence[SimulatedJob]) -> Figures:
    by_kind = {name: sorted(j.response for j in jobs if j.kind.name == name) for name in ("short", "long")}
    return Figures(
        mean=statistics.mean(job.response for job in jobs),
        short_p95=p95(by_kind["short"]),
        long_p95=p95(by_kind["long"]),
        long_max=by_kind["long"][-1],
        slowdown_p95=p95(sorted(job.response / job.kind.seconds for job in jobs)),
        inflation=done.inflation,
        peak_gib=done.peak_bytes / 2**30,
    )


def p95(ordered: Sequence[float]) -> float:
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


COLUMNS = {
    "mean": "mean",
    "short_p95": "short p95",
    "long_p95": "long p95",
    "long_max": "long max",
    "slowdown_p95": "slowdown p95",
    "inflation": "work",
    "peak_gib": "peak GiB",
}


def main() -> None:
    args = settled(arguments(__doc__, rounds=5, full_rounds=20))
    count = 60 if args.smoke else 600
    found = {case: averaged(*case, rounds=args.rounds, count=count) for case in cases()}
    rows: list[Sequence[str]] = [("mix", "load", "batching", "policy", *COLUMNS.values())]
    for (mix, load, batching, policy), told in found.items():
        numbers = (f"{getattr(told, name):.2f}" for name in COLUMNS)
        rows.append((mix, f"{load:g}", "on" if batching else "off", policy, *numbers))
    figures, goals = compared(found)
    report("scheduling", rows, figures, goals, args)


def cases() -> Iterator[tuple[str, float, bool, str]]:
    """Mix, load, whether jobs may share steps, and policy."""
    for mix, load, batching, policy in itertools.product(MIXES, LOADS, (False, True), POLICIES):
        if batching or policy != "fifo + static batch":
            yield mix, load, batching, policy


def averaged(mix: str, load: float, batching: bool, policy: str, *, rounds: int, count: int) -> Figures:
    runs = [one_run(policy, mix, load, seed, batching=batching, count=count) for seed in range(rounds)]
    return Figures(**{name: statistics.mean(getattr(run, name) for run in runs) for name in COLUMNS})


def compared(
    found: dict[tuple[str, float, bool, str], Figures],
) -> tuple[dict[str, float], list[Goal]]:
    """fv over FIFO at load 0.8, batching off, and the work of all runs of fv."""
    figures = {}
    for mix in MIXES:
        ours, fifo = found[mix, 0.8, False, "fv"], found[mix, 0.8, False, "fifo"]
        for name in ("mean", "short_p95", "long_p95"):
            figures[f"{mix}_{name}_over_fifo"] = getattr(ours, name) / getattr(fifo, name)
    figures["work_inflation"] = max(one.inflation for key, one in found.items() if key[3] == "fv")
    limits = {
        "A_mean_over_fifo": 0.5, "A_short_p95_over_fifo": 0.25, "A_long_p95_over_fifo": 1.4,
        "C_short_p95_over_fifo": 0.25, "C_mean_over_fifo": 0.8, "work_inflation": 1.03,
    }  # fmt: skip
    return figures, [Goal(figure=name, at_most=True, limit=limit) for name, limit in limits.items()]


if __name__ == "__main__":
    main()
