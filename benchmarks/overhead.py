"""What scheduler and executor add to a step of a request, in CPU time, with 32 requests in flight.

Every step has guidance and UniPC-2, as Wan 2.1's. The engine and a bare loop take turns: the bare one makes the same
forwards of the same rows and calls the same sampler, and what the engine takes beyond it is its own. Together: 16
requests take each step. Alone: one does, chosen among the 32 every time. The components are torch modules of a few
hundred parameters, so that forwards do not drown the difference, and the clock is the thread's own, which does not see
what else the machine does.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from report import Goal, arguments, report, settled
from torch import Tensor

from fv_core import Engine, Request, derive
from fv_core.loop import ResolvedCall, StepResult
from fv_core.loop.driver import advance
from fv_core.request import CancelScope, Priority, RequestEvent
from fv_core.runtime.batching import MAX_BATCH
from fv_core.runtime.dispatch import Dispatcher, Entry
from fv_core.runtime.gain import Measured
from fv_core.runtime.run import RequestRun
from fv_core.runtime.scheduler.contract import Join
from fv_core.runtime.scheduler.joining import Joining, alone
from fv_core.runtime.scheduler.remaining import LeastRemaining
from fv_core.testing.tiny import CARD

IN_FLIGHT: Final = 32
UNIPC: Final = "flow.unipc2.cfg/v1"
MODEL = derive(
    CARD,
    loops={**CARD.loops, "denoise": replace(CARD.loops["denoise"], semantics=UNIPC)},
    recipe={"assumes_loop": UNIPC},
)
WARM: Final = 4
STEPS: Final = 64
LATER: Final = 3600.0
"""Seconds from now when all have come, so that nobody has waited too long and goes before the others."""


class Flat:
    """A step takes the same however many rows it has, so that all join that may."""

    def step_seconds(self, key: Hashable, rows: int) -> float:
        return 1.0


class Sharing(Measured):
    """Does all that an engine does to find out what sharing gains, and shares."""

    def joins(self, kind: Hashable, rows: int, more: int) -> bool:
        super().joins(kind, rows, more)
        return True


JOINS: Final[dict[str, Join]] = {"together": Joining(times=Flat()), "alone": alone}


class Flight:
    """Requests in flight, all of them at the first step of denoising."""

    def __init__(self, engine: Engine, join: Join) -> None:
        self.dispatcher = Dispatcher(engine, LeastRemaining(join))
        self._told: deque[RequestEvent] = deque(maxlen=1)
        for seed in range(IN_FLIGHT):
            self.dispatcher.add(self._entry(engine, seed))

    def _entry(self, engine: Engine, seed: int) -> Entry:
        request = Request(
            prompt=f"a red circle, number {seed}", seed=seed, size=(64, 64), frames=17, steps=STEPS, guidance=5.0
        )  # fmt: skip
        cancel = CancelScope()
        job = engine.start(request, cancel=cancel, observer=self._told.append)
        while job.run.turn != "denoise":
            job.step()
        return Entry(
            id=job.run.id, resting=None, job=job, announced=True, quote=job.quote, turn=job.run.turn,
            priority=Priority.STANDARD, arrived=time.monotonic() + LATER, cancel=cancel, tell=self._told.append,
            lags=lambda: False, expect=lambda ends, left: None,
        )  # fmt: skip

    def step(self) -> None:
        self.dispatcher.round()

    def going(self) -> list[RequestRun]:
        """Those that have begun to denoise, which are those whose turn it still is."""
        return [
            entry.job.run
            for entry in self.dispatcher.entries
            if entry.job is not None and entry.job.run.state is not None
        ]

    def close(self) -> None:
        for entry in self.dispatcher.entries:
            assert entry.job is not None
            entry.job.close()


class Bare:
    """The engine's steps from here on, written out: the forwards of their rows, and the sampler."""

    def __init__(self, runs: Sequence[RequestRun]) -> None:
        self._runs, self._states = runs, [run.state for run in runs]
        self._loop = runs[0].loop
        self._denoiser = runs[0].instance.component("denoiser")
        self.sampler_s = 0.0

    @torch.no_grad()
    def step(self) -> None:
        calls = [
            call for run, state in zip(self._runs, self._states, strict=True) for call in _calls(run, state)
        ]
        outputs = [
            one.output
            for begin in range(0, len(calls), MAX_BATCH)
            for one in self._denoiser.forward_batch("velocity", calls[begin : begin + MAX_BATCH])
        ]
        began = time.thread_time()
        pairs = zip(outputs[::2], outputs[1::2], strict=True)
        results = [StepResult(outputs=pair, caches=((), ())) for pair in pairs]
        self._states = [advance(self._loop, *one) for one in zip(self._states, results, strict=True)]
        self.sampler_s += time.thread_time() - began

    def latents(self) -> list[Tensor]:
        return [state.latent for state in self._states]


def _calls(run: RequestRun, state: Any) -> Iterator[ResolvedCall]:
    for text in (state.cond, state.uncond):
        rows = {"latent": state.latent, "timestep": state.timesteps[state.step], "text": run.scope.get(text)}
        yield ResolvedCall(rows=rows, static={}, caches=(), numerics=run.request.numerics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """CPU microseconds of a step of one request."""

    own: float
    sampler: float
    whole: float


def measured(engine: Engine, join: Join, steps: int) -> Costs:
    """One flight of requests, in alternation with the bare loop."""
    flight = Flight(engine, join)
    for _ in range(WARM):
        flight.step()
    runs = flight.going()
    bare = Bare(runs)
    ours: list[float] = []
    theirs: list[float] = []
    gc.collect()
    for index in range(steps):
        pair = ((flight.step, ours), (bare.step, theirs))
        for step, seconds in pair[:: 1 if index % 2 else -1]:
            began = time.thread_time()
            step()
            seconds.append(time.thread_time() - began)
    for run, latent in zip(runs, bare.latents(), strict=True):
        assert torch.equal(run.state.latent, latent), "both compute the same"
    flight.close()
    each = 1e6 / len(runs)
    return Costs(
        own=each * statistics.median(a - b for a, b in zip(ours, theirs, strict=True)),
        sampler=each * bare.sampler_s / steps,
        whole=each * statistics.median(ours),
    )


def main() -> None:
    args = settled(arguments(__doc__, rounds=7))
    torch.set_num_threads(1)
    steps = 2 if args.smoke else STEPS - WARM - 4
    with Engine([MODEL], device="cpu", gain=Sharing(torch.device("cpu"))) as engine:
        found = {
            name: [measured(engine, join, steps) for _ in range(args.rounds)] for name, join in JOINS.items()
        }
    figures: dict[str, float] = {}
    rows = [("a step of one of 32 requests, CPU microseconds", "scheduler and executor", "sampler", "in all")]
    for name, costs in found.items():
        own, sampler, whole = (
            statistics.median(getattr(one, what) for one in costs) for what in ("own", "sampler", "whole")
        )
        rows.append((name, f"{own:.0f}", f"{sampler:.0f}", f"{whole:.0f}"))
        figures |= {f"{name}_us": own, f"{name}_sampler_us": sampler}
    goals = [Goal(figure=f"{name}_us", at_most=True, limit=150.0) for name in JOINS]
    report("overhead", rows, figures, goals, args)


if __name__ == "__main__":
    main()
