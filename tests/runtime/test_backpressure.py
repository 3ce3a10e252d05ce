"""Whoever is slow holds up the own job, within a bound, and no other: readers, disks, and requests that are checked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core import AsyncEngine, Clip, Engine, FvError, MediaChunk, Request, StepDone
from fv_core.runtime.async_job import AHEAD, AsyncJob
from fv_core.runtime.gain import Always
from fv_core.runtime.snapshots.job_store import JobStore

Ask = Callable[..., Request]
MODEL = "wan21/micro"
LONG = 81
"""Frames of a clip that is told in 21 chunks."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(**options: Any) -> AsyncEngine:
    return AsyncEngine([MODEL], device="cpu", gain=Always(), **options)


async def chunks(job: AsyncJob) -> list[int]:
    return [event.index async for event in job if isinstance(event, MediaChunk)]


async def first_chunk(events: Any) -> None:
    async for event in events:
        if isinstance(event, MediaChunk):
            return


def test_a_job_waits_for_its_reader_and_its_neighbours_do_not(ask: Ask, engine: Engine) -> None:
    long, short = ask(frames=LONG), ask(seed=2)

    async def main() -> tuple[Clip, Clip]:
        async with made() as running:
            job = await running.submit(long)
            events = aiter(job)
            await first_chunk(events)
            neighbours = [await (await running.submit(short)).result() for _ in range(3)]
            while not running._dispatcher.idle:  # as long as anybody could take a step
                await asyncio.sleep(0)
            for _ in range(3):
                assert (await running.counters()).requests == 1
            assert running._dispatcher.idle
            assert len(job.chunks) == 1 + AHEAD
            assert [event.index async for event in events if isinstance(event, MediaChunk)] == [*range(1, 21)]
            return await job.result(), neighbours[0]

    found = asyncio.run(main())
    for clip, request in zip(found, (long, short), strict=True):
        assert torch.equal(clip.tensors["video"], engine.run(request).tensors["video"])


@pytest.mark.parametrize("how", ["awaits the result", "stops reading", "drains", "cancels", "leaves"])
def test_a_job_that_waits_for_its_reader_ends_when_that_one_has_done_reading(how: str, ask: Ask) -> None:
    async def main() -> str:
        async with made() as running:
            job = await running.submit(ask(frames=LONG))
            events = aiter(job)
            await first_chunk(events)
            while len(job.chunks) < AHEAD:
                await asyncio.sleep(0)
            if how == "awaits the result":
                await job.result()
            elif how == "stops reading":
                await events.aclose()  # type: ignore[attr-defined]
                while not job.done:
                    await asyncio.sleep(0)
            elif how == "drains":
                await running.drain()
            elif how == "cancels":
                job.cancel()
        try:
            return f"{len((await job.result()).frames)} frames"
        except FvError as error:
            return error.code

    assert asyncio.run(main()) == ("FV510" if how in ("cancels", "leaves") else "81 frames")


def test_a_deadline_ends_a_job_that_waits_for_its_reader(ask: Ask) -> None:
    async def main() -> None:
        async with made() as running:
            await (await running.submit(ask())).result()  # all is loaded
            job = await running.submit(ask(frames=LONG), deadline_s=2.0)
            events = aiter(job)  # not closed, so it may still be read
            await first_chunk(events)
            while not job.done:
                await asyncio.sleep(0.01)
            with pytest.raises(FvError, match="FV512"):
                await job.result()

    asyncio.run(main())


def test_who_reads_nothing_is_waited_for_by_nobody(ask: Ask) -> None:
    async def main() -> None:
        async with made() as running:
            job = await running.submit(ask(frames=LONG))
            await running.drain()
            assert await chunks(job) == [*range(21)]

    asyncio.run(main())


def test_a_disk_that_hangs_for_one_job_holds_up_that_one(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed, hung, put = threading.Event(), set[str](), JobStore.put

    def slow(self: JobStore, job: str, snapshot: Any) -> None:
        if (
            snapshot.header.request.seed == 1
            and (self.folder / job / "snapshot-00000000.safetensors").exists()
        ):
            hung.add(job)
            assert freed.wait(timeout=600)
        put(self, job, snapshot)

    monkeypatch.setattr(JobStore, "put", slow)

    async def main() -> None:
        async with made(store=tmp_path, every_s=0.0) as running:
            first = await running.submit(ask(seed=1, steps=30))
            seen = []
            async for event in first:
                seen.append(event)
                if isinstance(event, StepDone):
                    break
            for seed in (2, 3):
                await (await running.submit(ask(seed=seed))).result()
            assert hung == {first.id}
            assert not first.done
            freed.set()
            await first.result()

    asyncio.run(main())


def test_who_submits_waits_for_no_step(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one forward goes on, requests are refused and accepted, with a store too."""
    inside, freed = threading.Event(), threading.Event()

    async def main() -> None:
        async with made() as running:
            component = running._engine.instance(MODEL).component("transformer")
            forward = component.forward_batch

            def slow(op: str, calls: Any) -> Any:
                inside.set()
                assert freed.wait(timeout=600)
                return forward(op, calls)

            monkeypatch.setattr(component, "forward_batch", slow)
            first = await running.submit(ask())
            await asyncio.to_thread(inside.wait, 600)
            with pytest.raises(FvError, match="FV302"):
                await running.submit(ask(size=(17, 17)))
            second = await running.submit(ask(seed=2))
            assert not first.done
            freed.set()
            await first.result()
            await second.result()

    asyncio.run(main())
