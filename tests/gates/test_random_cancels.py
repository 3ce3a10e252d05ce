"""Random cancels of jobs behind an event loop: no component call begins after the running one; all is given back."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core import AsyncEngine, Cancelled, Engine, Failed, FvError, MediaChunk, Priority, Request, StepDone
from fv_core.runtime.async_job import AsyncJob
from fv_core.runtime.gain import Always
from fv_core.runtime.snapshots.job_store import JobStore

Ask = Callable[..., Request]
MODEL = "wan21/micro"


@dataclass(kw_only=True)
class Calls:
    """Counts the forwards that began, by the width of their latents; `during` is called within each of them."""

    begun: int = 0
    widths: list[int] = field(default_factory=list)
    during: Callable[[], None] = lambda: None

    def put_on(self, engine: AsyncEngine) -> None:
        instance = engine._engine.instance(MODEL)
        for name in instance.card.components:
            component = instance.component(name)
            component.forward_batch = self._counted(component.forward_batch)  # type: ignore[method-assign]

    def _counted(self, forward: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def counted(op: str, calls: Any) -> list[Any]:
            self.begun += 1
            self.widths += [call.rows["latent"].shape[-1] for call in calls if "latent" in call.rows]
            self.during()
            return forward(op, calls)

        return counted


def made(**options: Any) -> AsyncEngine:
    torch.set_num_threads(1)
    return AsyncEngine([MODEL], device="cpu", gain=Always(), **options)


async def code_of(job: AsyncJob) -> str:
    with pytest.raises(FvError) as caught:
        await job.result()
    return caught.value.code


async def held(engine: AsyncEngine) -> tuple[int, ...]:
    now = await engine.counters()
    return now.requests, now.values, now.caches, now.cache_bytes, now.reserved_bytes


def cancel(job: AsyncJob) -> None:
    job.cancel()


def let_the_deadline_pass(job: AsyncJob) -> None:
    job._cancel.deadline = time.monotonic() - 1.0


WAYS: dict[Callable[[AsyncJob], None], str] = {cancel: "FV510", let_the_deadline_pass: "FV512"}


def test_no_call_begins_after_the_running_one(
    ask: Ask, soak: bool, record_property: Callable[[str, object], None]
) -> None:
    """One job at a time, cancelled within a call that is drawn: of the prompt, a step, the decoder."""
    rng, nodes, cancels = random.Random(0), dict[str, int](), 1000 if soak else 24

    async def one(engine: AsyncEngine, calls: Calls) -> None:
        frames, steps = rng.choice([1, 5, 9]), rng.choice([1, 2, 3])
        way = rng.choice(list(WAYS))
        calls.begun, at = 0, rng.randrange(1, steps + 1 + (frames + 3) // 4)  # at least one is left after it
        jobs: list[AsyncJob] = []

        ready = threading.Event()

        def during() -> None:
            assert ready.wait(timeout=600)
            if calls.begun == at:
                way(jobs[0])

        calls.during = during
        prompt = f"circle {rng.randrange(1000)}"
        jobs.append(await engine.submit(ask(prompt=prompt, frames=frames, steps=steps)))
        ready.set()
        events = [event async for event in jobs[0]]
        with pytest.raises(Cancelled) as caught:
            await jobs[0].result()
        assert caught.value.code == WAYS[way]
        assert calls.begun == at
        chunks = tuple(event for event in events if isinstance(event, MediaChunk))
        assert caught.value.partial == chunks == jobs[0].chunks
        assert isinstance(events[-1], Failed)
        assert await held(engine) == (0, 0, 0, 0, 0)
        last = next((event.node for event in reversed(events) if isinstance(event, StepDone)), "none")
        nodes[last] = nodes.get(last, 0) + 1

    async def main() -> None:
        async with made() as engine:
            calls = Calls()
            calls.put_on(engine)
            for _ in range(cancels):
                await one(engine, calls)

    asyncio.run(main())
    assert (
        nodes.keys() >= {"denoise", "decode"} and len(nodes) > 2
    )  # and of the prompts, where they were not kept
    assert sum(nodes.values()) == cancels
    record_property("cancels by the node of the last step", nodes)


def test_who_is_queued_never_begins(ask: Ask) -> None:
    async def main() -> None:
        async with made() as engine:
            calls, inside, freed = Calls(), threading.Event(), threading.Event()
            calls.put_on(engine)

            def during() -> None:
                inside.set()
                freed.wait(timeout=600)

            calls.during = during
            running = await engine.submit(ask(), priority=Priority.INTERACTIVE)
            await asyncio.to_thread(inside.wait, 600)
            queued = await engine.submit(ask(seed=2, size=(32, 16)))
            queued.cancel()
            freed.set()
            assert await code_of(queued) == "FV510"
            await running.result()
            assert set(calls.widths) == {2}

    asyncio.run(main())


def test_who_made_room_and_waits_for_memory_goes_on_no_more(ask: Ask, engine: Engine) -> None:
    slow, urgent = ask(seed=1, steps=40), ask(seed=2, steps=2, size=(32, 16))
    room = max(engine.plan(urgent).peak_bytes, engine.plan(slow).peak_bytes) + 4096

    async def main() -> None:
        async with made(memory=room) as running:
            calls = Calls()
            calls.put_on(running)
            first = await running.submit(slow, priority=Priority.BATCH)
            async for event in first:
                if isinstance(event, StepDone) and event.node == "denoise":
                    break
            resting = threading.Event()

            def during() -> None:
                if calls.widths[-1:] == [4]:  # the urgent one steps, so the other made room
                    first.cancel()
                    resting.set()

            calls.during = during
            second = await running.submit(urgent, priority=Priority.INTERACTIVE)
            await second.result()
            assert resting.is_set()
            assert await code_of(first) == "FV510"
            assert 2 not in calls.widths[calls.widths.index(4) :]
            assert await held(running) == (0, 0, 0, 0, 0)

    asyncio.run(main())


def test_who_is_being_written_ends_and_leaves_the_store(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, freed, put = threading.Event(), threading.Event(), JobStore.put

    def slow(self: JobStore, job: str, snapshot: Any) -> None:
        if (self.folder / job / "snapshot-00000000.safetensors").exists():
            writing.set()
            assert freed.wait(timeout=600)
        put(self, job, snapshot)

    monkeypatch.setattr(JobStore, "put", slow)

    async def main() -> None:
        async with made(store=tmp_path, every_s=0.0) as engine:
            job = await engine.submit(ask(steps=30))
            await asyncio.to_thread(writing.wait, 600)
            job.cancel()
            freed.set()
            assert await code_of(job) == "FV510"
            assert sorted(path.name for path in tmp_path.iterdir()) == [".fv-jobs", ".lock"]
            assert await held(engine) == (0, 0, 0, 0, 0)

    asyncio.run(main())
