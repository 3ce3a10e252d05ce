"""What requests take against what was predicted: of the tiny Wan card on three shapes, once its steps were measured.

Calibrated is a request of the shape run twice, kept under fv's home, and an engine that begins from it. Alone: one
request after the other, `plan().seconds` and the time left that is told at every step. Together: eight jobs at once on
an `AsyncEngine`, `job.eta` as soon as the last has been taken on.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from report import Goal, arguments, report, settled

from fv_core import AsyncEngine, Engine, Request
from fv_core.request import Loading, RequestEvent, StepDone
from fv_core.runtime.async_job import AsyncJob

MODEL: Final = "wan21/micro"
SHAPES: Final = {
    "32x32, 5 frames": ((32, 32), 5), "64x64, 17 frames": ((64, 64), 17), "128x128, 9 frames": ((128, 128), 9),
}  # fmt: skip
TOGETHER: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of predictions: |predicted - actual| / actual."""

    plans: Sequence[float]
    left: Sequence[float]


@contextmanager
def unmeasured() -> Iterator[None]:
    """A home of its own: nothing was ever measured on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FV_HOME"] = folder
        yield


def ask(shape: str, seed: int) -> Request:
    size, frames = SHAPES[shape]
    steps = random.Random(seed).randint(4, 12)
    return Request(prompt=f"a red circle, number {seed}", seed=seed, size=size, frames=frames, steps=steps)


def alone(shape: str, rounds: int) -> Errors:
    """Plans, and what was left at each step, against what it was."""
    with Engine([MODEL], device="cpu", reuse=False) as engine:
        for seed in range(2):
            engine.run(ask(shape, seed))
    plans, left = [], []
    with Engine([MODEL], device="cpu", reuse=False) as engine:
        engine.run(ask(shape, 2))  # loads the weights, which is no part of any prediction
        for seed in range(3, 3 + rounds):
            told: list[tuple[float, float]] = []

            def observe(event: RequestEvent, told: list[tuple[float, float]] = told) -> None:
                if isinstance(event, StepDone) and event.left_s:
                    told.append((time.perf_counter(), event.left_s))
                assert not isinstance(event, Loading)

            request = ask(shape, seed)
            planned = engine.plan(request).seconds
            assert planned is not None
            began = time.perf_counter()
            engine.run(request, observer=observe)
            ended = time.perf_counter()
            plans.append(abs(planned - (ended - began)) / (ended - began))
            left += [abs(seconds - (ended - at)) / (ended - at) for at, seconds in told]
    return Errors(plans=plans, left=left)


async def together(rounds: int) -> list[float]:
    """`job.eta` of jobs of all shapes at once, against when they ended."""
    errors: list[float] = []
    async with AsyncEngine([MODEL], device="cpu", reuse=False) as engine:
        for shape in SHAPES:
            await (await engine.submit(ask(shape, 0))).result()
        for index in range(rounds):
            rng = random.Random(index)
            jobs = [
                await engine.submit(ask(rng.choice(list(SHAPES)), 100 + seed)) for seed in range(TOGETHER)
            ]
            while any(job.eta is None for job in jobs):
                await asyncio.sleep(0.001)
            predicted, at = [job.eta or 0.0 for job in jobs], time.perf_counter()
            actual = await asyncio.gather(*(ended(job, at) for job in jobs))
            errors += [abs(p - a) / a for p, a in zip(predicted, actual, strict=True) if a > 0 and p > 0]
    return errors


async def ended(job: AsyncJob, at: float) -> float:
    await job.result()
    return time.perf_counter() - at


def main() -> None:
    args = settled(arguments(__doc__, rounds=12))
    torch.set_num_threads(1)
    rows: list[Sequence[str]] = [
        ("shape", "predictions", "median error of plans", "median error of time left")
    ]
    figures: dict[str, float] = {}
    with unmeasured():
        for number, shape in enumerate(SHAPES, start=1):
            errors = alone(shape, args.rounds)
            plans, left = statistics.median(errors.plans), statistics.median(errors.left)
            rows.append((shape, str(len(errors.plans)), f"{plans:.3f}", f"{left:.3f}"))
            figures |= {f"shape_{number}_error": plans, f"shape_{number}_left_error": left}
        shared = asyncio.run(together(max(1, args.rounds // 4)))
    figures["together_eta_error"] = statistics.median(shared)
    rows.append(
        (f"all, {TOGETHER} jobs at once", str(len(shared)), "", f"{figures['together_eta_error']:.3f}")
    )
    goals = [Goal(figure=f"shape_{number}_error", at_most=True, limit=0.25) for number in (1, 2, 3)]
    report("prediction", rows, figures, goals, args)


if __name__ == "__main__":
    main()
