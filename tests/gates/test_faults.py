"""Random faults side by side: cancels, deadlines, kernels that fail, numbers that are not finite, no memory, slow and
full disks, slow readers. However a job ends, everything comes back and its neighbours have their bits.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from fv_core import AsyncEngine, Clip, Engine, Failed, Finished, FvError, Request
from fv_core.media.atomic import refusing
from fv_core.runtime.async_job import AsyncJob
from fv_core.runtime.gain import Always
from fv_core.runtime.snapshots.job_store import JobStore

Ask = Callable[..., Request]
MODEL = "wan21/micro"
AT_ONCE = 5
ALLOWED = {"FV402", "FV403", "FV501", "FV502", "FV510", "FV512"}


@pytest.fixture
def requests(ask: Ask) -> list[Request]:
    """What is asked for: little enough that each has been run alone, and some of one shape, which share forwards."""
    shapes = [((16, 16), 5, 3), ((16, 16), 5, 3), ((16, 16), 5, 4), ((32, 16), 9, 2), ((32, 16), 1, 2)]
    return [
        ask(seed=seed, size=size, frames=frames, steps=steps)
        for seed, (size, frames, steps) in enumerate(shapes)
    ]


class Faults:
    """Dooms calls of components by what is in them: in a shared forward, and when it is repeated alone."""

    def __init__(self, seed: int, *, share: float) -> None:
        self.rng = random.Random(seed)
        self.share = share
        self._fates: dict[object, str] = {}

    def put_on(self, engine: Engine) -> None:
        instance = engine.instance(MODEL)
        for name in instance.card.components:
            component = instance.component(name)
            component.forward_batch = self._wrapped(component.forward_batch)  # type: ignore[method-assign]

    def next_round(self) -> None:
        self._fates.clear()

    def _wrapped(self, forward: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def faulty(op: str, calls: Sequence[Any]) -> list[Any]:
            fates = [self._fate(op, call.rows) for call in calls]
            if "fails" in fates:
                raise ArithmeticError("a kernel failed")
            if "no memory" in fates:
                raise torch.OutOfMemoryError("simulated")
            outputs = forward(op, calls)
            for fate, output in zip(fates, outputs, strict=True):
                for tensor in output.output.tensors.values() if fate == "not finite" else ():
                    tensor.view(-1)[0] = torch.nan
            return outputs

        return faulty

    def _fate(self, op: str, rows: Any) -> str:
        content = (op, *((name, row_content(row)) for name, row in sorted(rows.items())))
        if content not in self._fates:
            doomed = self.rng.random() < self.share
            self._fates[content] = (
                self.rng.choice(("fails", "no memory", "not finite")) if doomed else "lives"
            )
        return self._fates[content]


def row_content(row: object) -> object:
    return row.contiguous().numpy().tobytes() if isinstance(row, Tensor) else row


@pytest.fixture
def bad_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes its time, and is full now and then."""
    rng, put, emit = random.Random(1), JobStore.put, JobStore.emit

    def strain() -> None:
        time.sleep(rng.random() * 0.003)
        if rng.random() < 0.05:
            raise OSError(errno.ENOSPC, "No space left on device")

    def bad_put(self: JobStore, job: str, snapshot: Any) -> None:
        with refusing(self.folder):
            strain()
        put(self, job, snapshot)

    def bad_emit(self: JobStore, *what: Any) -> bool:
        with refusing(self.folder):
            strain()
        return emit(self, *what)

    monkeypatch.setattr(JobStore, "put", bad_put)
    monkeypatch.setattr(JobStore, "emit", bad_emit)


class Mix:
    """Rounds of jobs side by side, each with a fate of its own, on one engine."""

    def __init__(self, requests: list[Request], expected: list[Clip], folder: Path, seed: int) -> None:
        self.requests, self.expected, self.folder = requests, expected, folder
        self.rng = random.Random(seed)
        self.ends: dict[str, int] = {}
        self.live: list[float] = []
        self.resident: list[float] = []
        self.leaked: list[Clip] = []

    async def run(self, rounds: int, *, share: float, leak: bool = False) -> None:
        faults = Faults(self.rng.randrange(2**32), share=share)
        async with AsyncEngine(
            [MODEL], device="cpu", gain=Always(), store=self.folder, every_s=0.02
        ) as engine:
            faults.put_on(engine._engine)
            for _ in range(rounds):
                faults.next_round()
                clips = await asyncio.gather(*(self.one(engine) for _ in range(AT_ONCE)))
                await self.check_baseline(engine)
                self.leaked += [clip for clip in clips if leak and clip is not None]
                del clips
                self.measure()

    async def one(self, engine: AsyncEngine) -> Clip | None:
        """One job from its submission to its end: a clip that equals that of its request alone, or an allowed error."""
        which, how = self.rng.randrange(len(self.requests)), self.rng.random()
        deadline_s = self.rng.random() * 0.1 if how < 0.1 else None
        try:
            job = await engine.submit(self.requests[which], deadline_s=deadline_s)
        except FvError as error:
            self.note(error.code)
            return None
        cancel_at = self.rng.randrange(12) if 0.1 <= how < 0.3 else None
        if how < 0.8:
            await self.read(job, cancel_at, slow=how > 0.6)
        try:
            clip = await job.result()
        except FvError as error:
            self.note(error.code)
            return None
        finally:
            await engine.forget(job)
        alone = self.expected[which]
        assert all(torch.equal(clip.tensors[name], alone.tensors[name]) for name in ("latent", "video"))
        self.note("finished")
        return clip

    async def read(self, job: AsyncJob, cancel_at: int | None, *, slow: bool) -> None:
        seen = 0
        async for event in job:
            last = event
            if slow:
                await asyncio.sleep(0.001)
            if seen == cancel_at:
                job.cancel()
            seen += 1
        assert isinstance(last, (Finished, Failed))

    def note(self, end: str) -> None:
        assert end in ALLOWED | {"finished"}
        self.ends[end] = self.ends.get(end, 0) + 1

    async def check_baseline(self, engine: AsyncEngine) -> None:
        held = await engine.counters()
        assert (held.requests, held.values, held.caches, held.cache_bytes, held.reserved_bytes) == (
            0,
            0,
            0,
            0,
            0,
        )
        assert all(room.reserved() == 0 for room in engine._engine._stores.rooms.values())
        assert engine._dispatcher.entries == () and engine._jobs == {} and engine._left == set()
        assert sorted(path.name for path in self.folder.iterdir()) == [".fv-jobs", ".lock"]

    def measure(self) -> None:
        gc.collect()
        self.live.append(sum(issubclass(type(each), Tensor) for each in gc.get_objects()))
        self.resident.append(psutil.Process().memory_info().rss)


def slope(samples: Sequence[float]) -> tuple[float, float]:
    """Least squares growth per request, and half the width of its 95 % confidence interval.

    Student's t is taken as z + (z^3 + z) / 4n, the first terms of its expansion in 1/n at n degrees of freedom.
    """
    at = np.arange(len(samples)) * AT_ONCE
    growth, start = np.polyfit(at, samples, 1)
    left = np.asarray(samples) - (growth * at + start)
    freedom = len(samples) - 2
    error = np.sqrt((left**2).sum() / freedom / ((at - at.mean()) ** 2).sum())
    return float(growth), float((1.96 + (1.96**3 + 1.96) / 4 / freedom) * error)


def used_here() -> tuple[int, int]:
    """Threads and file descriptors of this process."""
    gc.collect()
    return threading.active_count(), psutil.Process().num_fds()


@pytest.fixture
def frozen() -> Iterator[None]:
    """What was there before a test is looked at no more by the collector, and is not counted."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_everything_comes_back_and_neighbours_keep_their_bits(
    requests: list[Request],
    engine: Engine,
    tmp_path: Path,
    bad_disk: None,
    frozen: None,
    soak: bool,
    record_property: Callable[[str, object], None],
) -> None:
    warm, rounds = (60, 300) if soak else (2, 6)
    mix = Mix(requests, [engine.run(one) for one in requests], tmp_path, seed=0)
    asyncio.run(mix.run(warm, share=0.05))
    before = used_here()
    mix.live.clear()
    mix.resident.clear()
    asyncio.run(mix.run(warm + rounds, share=0.05))
    assert used_here() == before
    live, resident = slope(mix.live[warm:]), slope(mix.resident[warm:])
    wanted = ALLOWED | {"finished"} if soak else {"FV402", "FV501", "FV502", "finished"}
    for _ in range(5):  # deadlines come first on a busy machine: what is to be seen may need some rounds more
        if not mix.ends.keys() >= wanted:
            asyncio.run(mix.run(rounds, share=0.05))
    assert mix.ends.keys() >= wanted
    record_property("ends", mix.ends)
    record_property("live tensors per request, 95 %", told := shown(live))
    record_property("resident bytes per request, 95 %", shown(resident))
    assert live[0] - live[1] <= 0, told
    if soak:
        assert resident[0] - resident[1] <= 0 or resident[0] < 256, shown(resident)


def shown(growth: tuple[float, float]) -> str:
    return f"{growth[0]:.4f} [{growth[0] - growth[1]:.4f}, {growth[0] + growth[1]:.4f}]"


def test_a_leak_is_seen(requests: list[Request], engine: Engine, tmp_path: Path, frozen: None) -> None:
    """The negative control: of each request a clip is kept."""
    mix = Mix(requests, [engine.run(one) for one in requests], tmp_path, seed=0)
    with suppress(AssertionError):
        asyncio.run(mix.run(6, share=0.0, leak=True))
    growth = slope(mix.live[1:])
    assert len(mix.live) == 6 and growth[0] - growth[1] > 0, shown(growth)
