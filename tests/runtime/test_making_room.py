"""Who is first by the order steps next, whoever holds the memory that it needs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import torch

from fv_core import Clip, Engine, Priority, Request
from fv_core.request import CancelScope
from fv_core.runtime.dispatch import Dispatcher, Entry
from fv_core.runtime.gain import Always
from fv_core.runtime.job import Job, Observer
from fv_core.runtime.scheduler.contract import C, Candidate
from fv_core.runtime.scheduler.remaining import LeastRemaining
from fv_core.runtime.snapshots.snapshot import RequestSnapshot

MODEL = "wan21/micro"


class Watched(LeastRemaining):
    """Notes whoever goes first and did not step."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_over: list[str] = []
        self._first = ""

    def next(self, candidates: Sequence[C], now: float) -> Sequence[C]:
        chosen = super().next(candidates, now)
        self._first = chosen[0].id
        return chosen

    def ran(self, jobs: Sequence[Candidate], seconds: float) -> None:
        super().ran(jobs, seconds)
        if jobs[0].id != self._first:
            self.passed_over.append(self._first)


class Counted:
    """An engine that counts how often a job was started."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.starts = 0

    def resume(
        self, taken: RequestSnapshot, *, cancel: CancelScope | None = None, observer: Observer | None = None
    ) -> Job:
        job = self._engine.resume(taken, cancel=cancel, observer=observer)
        self.starts += 1
        return job

    def snapshot(self, job: Job) -> RequestSnapshot:
        return self._engine.snapshot(job)


def entry(engine: Engine, request: Request, priority: Priority) -> Entry:
    resting = engine.accept(request)
    return Entry(
        id=resting.header.request_id, resting=resting, quote=engine.quote(resting.header),
        turn=resting.header.turn, priority=priority, arrived=time.monotonic(), cancel=CancelScope(),
        tell=lambda event: None, lags=lambda: False, expect=lambda ends, left: None,
    )  # fmt: skip


def test_no_holder_of_any_class_keeps_the_first_from_its_step(
    ask: Callable[..., Request], engine: Engine, soak: bool
) -> None:
    """Memory for one job at a time, and jobs of every class that come while others hold it."""
    rng, coming = random.Random(0), 200 if soak else 9
    requests = [ask(seed=seed, steps=rng.randint(2, 9)) for seed in range(coming)]
    plan = engine.plan(requests[0])
    torch.set_num_threads(1)
    with Engine(
        [MODEL], device="cpu", gain=Always(), memory=plan.peak_bytes + plan.activations["transformer"] // 2
    ) as tight:
        watched, counted = Watched(), Counted(tight)
        dispatcher, done = Dispatcher(counted, watched), list[Entry]()
        clips: dict[str, Clip] = {}
        asked: dict[str, Request] = {}
        while requests or dispatcher.entries:
            if requests and (not dispatcher.entries or rng.random() < 0.3):
                asked_now = requests.pop()
                one = entry(tight, asked_now, rng.choice(list(Priority)))
                asked[one.id] = asked_now
                dispatcher.add(one)
            for ended in dispatcher.round():
                assert ended.error is None and ended.job is not None
                clips[ended.id] = tight.clip(ended.job)
                ended.job.close()
                done.append(ended)
        assert (len(done), watched.passed_over) == (coming, [])
        assert counted.starts > coming  # some had to rest
        assert tight.counters().reserved_bytes == 0
    for ident, clip in clips.items():
        assert torch.equal(clip.tensors["video"], engine.run(asked[ident]).tensors["video"])
