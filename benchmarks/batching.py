"""What sharing forwards gains: denoising steps of 1 to 16 requests at once, against one request after the other.

Alone: each step of a request is one plain forward of both its guidance branches, unpadded (joint CFG). Two workers:
two such processes of one thread each, with half of the requests. All others have one thread; every ratio is to alone.
"""

from __future__ import annotations

import multiprocessing
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Final

import torch
from report import Goal, arguments, ratio, report, settled

from fv_core import Engine, Numerics, Request, derive
from fv_core.runtime.job import Job, advance
from fv_wan21.card import MICRO

JOINT = derive(
    MICRO,
    model_id="wan21/joint",
    loops={**MICRO.loops, "denoise": replace(MICRO.loops["denoise"], params={"cfg": "joint"})},
)
ONE_BY_ONE: Final = (JOINT.model_id, Numerics.REFERENCE)
TOGETHER: Final = {"fast": (MICRO.model_id, Numerics.FAST), "exact": (MICRO.model_id, Numerics.EXACT)}
AT: Final = 8
LEARNS: Final = 5  # steps before the engine knows what gains


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Requests of one size, in the numbers that are measured."""

    name: str
    size: tuple[int, int]
    frames: int
    counts: tuple[int, ...]


SHIPPED = Shape(
    name="shipped",
    size=(MICRO.defaults.size.width, MICRO.defaults.size.height),
    frames=MICRO.defaults.frames,
    counts=(1, 2, 4, AT, 16),
)
SMALL = Shape(name="small", size=(32, 32), frames=5, counts=(1, 2, 4, AT, 16))
LARGE = Shape(name="large", size=(256, 256), frames=17, counts=(1, AT))


class Way:
    """Requests that denoise, a step of all of them at a time: together, or one after the other."""

    def __init__(self, engine: Engine, jobs: Sequence[Job]) -> None:
        self._engine = engine
        self._groups = [[job] for job in jobs] if jobs[0].run.request.model == JOINT.model_id else [jobs]
        self._count = 2 * len(jobs)
        self.seconds: list[float] = []
        self.rows = 0.0
        """Rows of a forward in the last step."""

    def step(self) -> None:
        before, began = self._forwards(), time.perf_counter()
        for group in self._groups:
            advance(group)
        self.seconds.append(time.perf_counter() - began)
        self.rows = self._count / (self._forwards() - before)

    def _forwards(self) -> int:
        return sum(one.forwards for one in self._engine.forwards() if one.op == "velocity")


@contextmanager
def ready(engine: Engine, shape: Shape, count: int, steps: int, way: tuple[str, Numerics]) -> Iterator[Way]:
    """So many requests of one shape, their prompts encoded."""
    with ExitStack() as stack:
        jobs = []
        for index in range(count):
            request = Request(
                prompt=f"a red circle, number {index}", seed=index, model=way[0], numerics=way[1],
                size=shape.size, frames=shape.frames, steps=steps, guidance=5.0,
            )  # fmt: skip
            jobs.append(stack.enter_context(closing(engine.start(request))))
            while jobs[-1].run.current.id != "denoise":
                jobs[-1].step()
        yield Way(engine, jobs)


def gains(shape: Shape, count: int, rounds: int) -> dict[str, tuple[float, float]]:
    """By the name of a way: how many times the throughput of requests alone it has, and its rows a forward."""
    steps = LEARNS + rounds
    with Engine([MICRO, JOINT], device="cpu") as engine, ExitStack() as stack:
        alone, *others = (
            stack.enter_context(ready(engine, shape, count, steps, way))
            for way in (ONE_BY_ONE, *TOGETHER.values())
        )
        for index in range(steps):
            for way in (alone, *others)[:: 1 if index % 2 else -1]:
                way.step()
        return {
            name: (ratio(alone.seconds[LEARNS:], way.seconds[LEARNS:]), way.rows)
            for name, way in zip(TOGETHER, others, strict=True)
        }


def work(orders: Connection, count: int, steps: int) -> None:
    """A worker: a step of `count` requests of the shipped shape, alone, each time it is told to."""
    torch.set_num_threads(1)
    with Engine([JOINT], device="cpu") as engine, ready(engine, SHIPPED, count, steps, ONE_BY_ONE) as way:
        for _ in range(steps):
            orders.send("ready")
            orders.recv()
            way.step()
            orders.send("done")


def two_workers(rounds: int) -> float:
    """Their throughput over that of requests alone."""
    context, steps = multiprocessing.get_context("spawn"), LEARNS + rounds
    ends = [context.Pipe() for _ in range(2)]
    workers = [context.Process(target=work, args=(there, AT // 2, steps)) for _, there in ends]
    for worker in workers:
        worker.start()
    two = []
    with Engine([JOINT], device="cpu") as engine, ready(engine, SHIPPED, AT, steps, ONE_BY_ONE) as alone:
        for _ in range(steps):
            told(ends, "ready")
            alone.step()
            began = time.perf_counter()
            tell(ends, "go")
            told(ends, "done")
            two.append(time.perf_counter() - began)
    for worker in workers:
        worker.join()
    return ratio(alone.seconds[LEARNS:], two[LEARNS:])


def tell(ends: Sequence[tuple[Connection, Connection]], word: str) -> None:
    for here, _ in ends:
        here.send(word)


def told(ends: Sequence[tuple[Connection, Connection]], word: str) -> None:
    assert [here.recv() for here, _ in ends] == [word] * len(ends)


def measured(args: Namespace) -> tuple[list[tuple[str, ...]], dict[str, float]]:
    rows: list[tuple[str, ...]] = [("shape", "requests", "fast", "rows a forward", "exact", "rows a forward")]
    figures: dict[str, float] = {}
    for shape in (SMALL, SHIPPED, LARGE):
        width, height = shape.size
        for count in (AT,) if args.smoke else shape.counts:
            found = gains(shape, count, min(args.rounds, 5) if shape is LARGE else args.rounds)
            told_gains = (f"{figure:.2f}" for pair in found.values() for figure in pair)
            rows.append((f"{shape.name} {width}x{height}, {shape.frames} frames", str(count), *told_gains))
            figures |= {f"{shape.name} {name} {count}": gain for name, (gain, _) in found.items()}
    figures["two workers"] = two_workers(args.rounds)
    rows.append(("two one-thread workers, shipped", str(AT), f"{figures['two workers']:.2f}", "2.00", "", ""))
    return rows, figures


def main() -> None:
    args = settled(arguments(__doc__, rounds=7))
    torch.set_num_threads(1)
    rows, found = measured(args)
    fast, exact = found[f"shipped fast {AT}"], found[f"shipped exact {AT}"]
    figures = {
        "fast_at_8": fast,
        "exact_at_8": exact,
        "exact_over_fast": exact / fast,
        "two_workers_at_8": found["two workers"],
        "large_fast_at_8": found[f"large fast {AT}"],
    }
    goals = [
        Goal(figure="fast_at_8", at_most=False, limit=1.5),
        Goal(figure="exact_at_8", at_most=False, limit=1.25),
        Goal(figure="exact_over_fast", at_most=False, limit=0.9),
    ]
    report("batching", rows, figures, goals, args)


if __name__ == "__main__":
    main()
