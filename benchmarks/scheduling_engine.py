"""Who waits how long, by policy, on the real engine: the tiny Wan card behind `AsyncEngine`, equal arrivals for all.

Mixes and load are those of `scheduling`; a short job is a clip of 32x32, a long one of 64x64 with as many steps as make
it 20, or 5, times as long, by what both were measured to take alone just before, behind the same engine. The
default is load 0.8; `--full` has all.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import tempfile
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import torch
from report import Goal, arguments, report, settled
from scheduling import LOADS, p95

from fv_core import AsyncEngine, Request
from fv_core.runtime.batching import MAX_BATCH
from fv_core.runtime.scheduler.baselines import Fifo, RoundRobin, Shortest, StaticBatch
from fv_core.runtime.scheduler.contract import Join, Scheduler
from fv_core.runtime.scheduler.joining import Joining, alone
from fv_core.runtime.scheduler.remaining import LeastRemaining

MODEL: Final = "wan21/micro"
STEPS: Final = 6
MORE: Final = 60
"""Steps by which a longer job tells what one takes."""
MOST_STEPS: Final = 400
SHORT: Final = Request(prompt="a red circle", size=(32, 32), frames=5, steps=STEPS)
LONG: Final = Request(prompt="a blue square", size=(64, 64), frames=17, steps=STEPS)
MIXES: Final = {"A": (0.9, 20.0), "C": (0.5, 5.0)}
"""The share of short jobs, and how many times as long the others are."""
POLICIES: Final[dict[str, Callable[[Join], Scheduler]]] = {
    "fifo": lambda join: Fifo(),
    "fifo + static batch": StaticBatch,
    "shortest job first": Shortest,
    "round robin": RoundRobin,
    "fv": LeastRemaining,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """A job that comes `at` seconds after the beginning and takes `solo` seconds alone."""

    request: Request
    at: float
    solo: float
    long: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Seconds from arrival to end; the work is over what the jobs take alone."""

    mean: float
    short_p95: float
    long_p95: float
    long_max: float
    slowdown_p95: float
    work: float
    peak_mib: float


LIMITS: Final = {
    "A_mean_over_fifo": 0.5, "A_short_p95_over_fifo": 0.25, "A_long_p95_over_fifo": 1.4, "A_work": 1.03,
    "C_mean_over_fifo": 0.8, "C_short_p95_over_fifo": 0.25, "C_work": 1.03,
}  # fmt: skip
"""At load 0.8 without batching. Work is over what the jobs take alone, as `measured` has it, the others are over first
come, first served. That order takes each job alone too, so its own work tells how far the measure can be trusted.
"""
COLUMNS: Final = ("mean", "short p95", "long p95", "long max", "slowdown p95", "work", "peak MiB")


async def measured(times: int) -> dict[str, tuple[Request, float]]:
    """The short job, and the long one of each mix, with the seconds that they take alone behind the same engine.

    Args:
        times: how often each is run, from 2 up; the first half pays for what is prepared once.
    """
    async with serving("fifo", batching=False, side_by_side=times) as engine:

        async def solo(request: Request) -> float:
            taken = [await taken_alone(engine, request, seed) for seed in range(times)]
            return statistics.median(taken[times // 2 :])

        short, long, longer = [await solo(one) for one in (SHORT, LONG, replace(LONG, steps=STEPS + MORE))]
        # A busy machine may take longer for fewer steps; the job is then no fair one, but a legal one.
        per_step = max((longer - long) / MORE, long / 50)
        jobs = {"short": SHORT}
        for mix, (_, factor) in MIXES.items():
            steps = STEPS + round((factor * short - long) / per_step)
            jobs[mix] = replace(LONG, steps=min(max(1, steps), MOST_STEPS))
        return {name: (request, await solo(request)) for name, request in jobs.items()}


async def taken_alone(engine: AsyncEngine, request: Request, seed: int) -> float:
    return (await (await engine.submit(replace(request, seed=seed))).result()).used.seconds


@asynccontextmanager
async def serving(policy: str, *, batching: bool, side_by_side: int) -> AsyncIterator[AsyncEngine]:
    """An engine that has taken jobs of both kinds, by themselves and so many of each side by side."""
    engine = AsyncEngine(
        [MODEL], device="cpu", reuse=False, max_batch=MAX_BATCH if batching else 1,
        policy=lambda times: POLICIES[policy](Joining(times=times) if batching else alone),
    )  # fmt: skip
    async with engine:
        for request in (SHORT, LONG):
            await (await engine.submit(request)).result()
        burst = [replace(request, seed=seed) for seed in range(side_by_side) for request in (SHORT, LONG)]
        for job in [await engine.submit(request) for request in burst]:
            await job.result()
        yield engine


def stream(
    jobs: dict[str, tuple[Request, float]], mix: str, load: float, count: int, seed: int
) -> list[Coming]:
    """Jobs in the shares of the mix, in any order, as a Poisson stream."""
    rng = random.Random(seed)
    longs = max(1, round((1 - MIXES[mix][0]) * count))
    kinds = [mix] * longs + ["short"] * (count - longs)
    rng.shuffle(kinds)
    rate, now, coming = load * count / sum(jobs[kind][1] for kind in kinds), 0.0, []
    for index, kind in enumerate(kinds):
        now += rng.expovariate(rate)
        request, solo = jobs[kind]
        coming.append(Coming(request=replace(request, seed=index), at=now, solo=solo, long=kind != "short"))
    return coming


async def one_run(policy: str, coming: Sequence[Coming], *, batching: bool, side_by_side: int) -> Figures:
    loop = asyncio.get_running_loop()
    async with serving(policy, batching=batching, side_by_side=side_by_side) as engine:
        began, peak, going = loop.time(), 0, True

        async def watch() -> None:
            nonlocal peak
            while going:
                peak = max(peak, (await engine.counters()).reserved_bytes)
                await asyncio.sleep(0.01)

        async def serve(one: Coming) -> tuple[float, float]:
            await asyncio.sleep(max(0.0, began + one.at - loop.time()))
            clip = await (await engine.submit(one.request)).result()
            return loop.time() - began - one.at, clip.used.seconds

        watching = asyncio.create_task(watch())
        served = await asyncio.gather(*map(serve, coming))
        going = False
        await watching
    responses = [response for response, _ in served]
    short = sorted(r for r, one in zip(responses, coming, strict=True) if not one.long)
    long = sorted(r for r, one in zip(responses, coming, strict=True) if one.long)
    return Figures(
        mean=statistics.mean(responses),
        short_p95=p95(short),
        long_p95=p95(long),
        long_max=long[-1],
        slowdown_p95=p95(sorted(r / one.solo for r, one in zip(responses, coming, strict=True))),
        work=sum(seconds for _, seconds in served) / sum(one.solo for one in coming),
        peak_mib=peak / 2**20,
    )


def cases(args: Namespace) -> list[tuple[str, float, bool, str]]:
    """Mix, load, whether jobs may share steps, and policy."""
    if args.smoke:
        return [("A", LOADS[0], False, policy) for policy in ("fifo", "fv")]
    loads, mixes = LOADS if args.full else LOADS[:1], list(MIXES)
    return [
        (mix, load, batching, policy)
        for mix in mixes for load in loads for batching in (False, True) for policy in POLICIES
        if batching or policy != "fifo + static batch"
    ]  # fmt: skip


def main() -> None:
    args = settled(arguments(__doc__, rounds=1, full_rounds=3))
    count, times = (4, 2) if args.smoke else (40, 8)
    torch.set_num_threads(1)
    rows: list[Sequence[str]] = [("mix", "load", "batching", "policy", *COLUMNS)]
    found: dict[tuple[str, float, bool, str], Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FV_HOME"] = folder
        jobs = asyncio.run(measured(times))
        for case in cases(args):
            mix, load, batching, policy = case
            runs = [
                asyncio.run(
                    one_run(
                        policy,
                        stream(jobs, mix, load, count, seed),
                        batching=batching,
                        side_by_side=times,
                    )
                )
                for seed in range(args.rounds)
            ]
            mean = {name: statistics.mean(getattr(run, name) for run in runs) for name in Figures.__slots__}
            found[case] = Figures(**mean)
            told = (f"{value:.2f}" for value in mean.values())
            rows.append((mix, f"{load:g}", "on" if batching else "off", policy, *told))
    figures: dict[str, float] = {}
    for mix in dict.fromkeys(mix for mix, *_ in found):
        ours, fifo = (found[mix, LOADS[0], False, policy] for policy in ("fv", "fifo"))
        for name in ("mean", "short_p95", "long_p95", "work"):
            figures[f"{mix}_{name}_over_fifo"] = getattr(ours, name) / getattr(fifo, name)
        figures[f"{mix}_work"] = ours.work
    limits = {name: limit for name, limit in LIMITS.items() if name in figures}
    goals = [Goal(figure=name, at_most=True, limit=limit) for name, limit in limits.items()]
    report("scheduling_engine", rows, figures, goals, args)


if __name__ == "__main__":
    main()
