"""The asynchronous engine: events, order, cancelling, deadlines, memory for who is first, and the store."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fv_core import (
    AsyncEngine,
    Cancelled,
    Clip,
    Engine,
    Failed,
    Finished,
    FvError,
    MediaChunk,
    Priority,
    Request,
    Started,
    StepDone,
)
from fv_core.errors import ResourceError
from fv_core.runtime.async_job import AsyncJob
from fv_core.runtime.gain import Always
from fv_core.runtime.job import Job
from fv_core.runtime.records import provenance
from fv_core.runtime.scheduler.baselines import Fifo
from fv_core.runtime.snapshots.job_store import JobStore
from fv_core.runtime.snapshots.snapshot import RequestSnapshot

Ask = Callable[..., Request]
MODEL = "wan21/micro"


@pytest.fixture
def alone(engine: Engine) -> Callable[[Request], Clip]:
    """The clip of a request by itself."""
    return engine.run


def made(**options: Any) -> AsyncEngine:
    torch.set_num_threads(1)
    return AsyncEngine([MODEL], device="cpu", gain=Always(), **options)


def same(one: Clip, other: Clip) -> bool:
    return all(torch.equal(one.tensors[name], other.tensors[name]) for name in ("latent", "video"))


async def held(engine: AsyncEngine) -> tuple[int, ...]:
    counters = await engine.counters()
    return (
        counters.requests,
        counters.values,
        counters.caches,
        counters.cache_bytes,
        counters.reserved_bytes,
    )


async def code_of(job: AsyncJob) -> str | None:
    try:
        await job.result()
    except FvError as error:
        return error.code
    return None


def test_jobs_tell_their_events_and_come_to_the_bits_that_they_have_alone(
    ask: Ask, alone: Callable[[Request], Clip]
) -> None:
    requests = [ask(seed=seed, steps=2 + seed, prompt="a circle " * (1 + seed)) for seed in range(4)]

    async def main() -> list[Clip]:
        async with made() as engine:
            jobs = [await engine.submit(request) for request in requests]
            events = [event async for event in jobs[0]]
            assert isinstance(events[0], Started) and isinstance(events[-1], Finished)
            steps = [(event.node, event.step) for event in events if isinstance(event, StepDone)]
            assert [one for one in steps if one[0] == "denoise"] == [("denoise", 1), ("denoise", 2)]
            clips = [await job.result() for job in jobs]
            assert await held(engine) == (0, 0, 0, 0, 0)
            return clips

    assert all(map(same, asyncio.run(main()), map(alone, requests)))


def test_who_is_refused_is_told_at_once_and_leaves_others_alone(ask: Ask) -> None:
    async def main() -> None:
        async with made(accepted=2) as engine:
            first = await engine.submit(ask(steps=30))
            with pytest.raises(FvError, match="FV302"):
                await engine.submit(ask(size=(17, 17)))
            second = await engine.submit(ask(seed=2))
            with pytest.raises(FvError, match="FV410"):
                await engine.submit(ask(seed=3))
            await second.result()
            first.cancel()
            assert await code_of(first) == "FV510"
            drained = asyncio.create_task(engine.drain())
            await drained
            with pytest.raises(FvError, match="FV506"):
                await engine.submit(ask())
        with pytest.raises(FvError, match="FV506"):
            await engine.submit(ask())

    asyncio.run(main())


def test_leaving_ends_what_still_runs(ask: Ask) -> None:
    async def main() -> None:
        async with made() as engine:
            jobs = [await engine.submit(ask(steps=500, seed=seed)) for seed in range(2)]
        assert [await code_of(job) for job in jobs] == ["FV510", "FV510"]
        events = [event async for event in jobs[0]]
        assert isinstance(events[-1], Failed)

    asyncio.run(main())


def test_a_deadline_ends_a_job_as_cancelling_does(ask: Ask) -> None:
    async def main() -> None:
        async with made() as engine:
            job = await engine.submit(ask(steps=500), deadline_s=0.0)
            with pytest.raises(Cancelled) as caught:
                await job.result()
            assert caught.value.code == "FV512"
            assert await held(engine) == (0, 0, 0, 0, 0)

    asyncio.run(main())


def test_random_cancels_start_no_further_call_and_leave_neighbours_their_bits(
    ask: Ask, alone: Callable[[Request], Clip], soak: bool
) -> None:
    expected, rng = alone(ask(seed=1, steps=4)), random.Random(0)

    async def main() -> None:
        async with made() as engine:
            for _ in range(500 if soak else 6):
                kept = await engine.submit(ask(seed=1, steps=4))
                doomed = [await engine.submit(ask(seed=seed, steps=40)) for seed in (2, 3)]
                async for event in doomed[0]:
                    if isinstance(event, (Failed, Finished)) or rng.random() < 0.2:
                        break
                for job in doomed:
                    job.cancel()
                assert [await code_of(job) for job in doomed] == ["FV510", "FV510"]
                assert same(await kept.result(), expected)
                assert await held(engine) == (0, 0, 0, 0, 0)

    asyncio.run(main())


def test_an_interactive_job_gets_the_memory_of_one_that_can_wait(
    ask: Ask, alone: Callable[[Request], Clip], engine: Engine
) -> None:
    """Two that fit alone but not together: the later, urgent one is not kept waiting by the holder."""
    slow, urgent = ask(seed=1, steps=40), ask(seed=2, steps=2)
    order: list[str] = []

    async def main() -> tuple[Clip, Clip]:
        room = engine.plan(slow).peak_bytes + engine.plan(slow).activations["transformer"] // 2
        async with made(memory=room) as asynchronous:
            first = await asynchronous.submit(slow, priority=Priority.BATCH)
            async for event in first:
                if isinstance(event, StepDone) and event.node == "denoise":
                    break
            second = await asynchronous.submit(urgent, priority=Priority.INTERACTIVE)
            clip = await second.result()
            order.append("first" if first.done else "second")
            return await first.result(), clip

    found = asyncio.run(main())
    assert order == ["second"]
    assert same(found[0], alone(slow)) and same(found[1], alone(urgent))


def test_jobs_of_a_closed_engine_go_on_in_another_and_a_damaged_one_harms_no_other(
    ask: Ask, alone: Callable[[Request], Clip], tmp_path: Path
) -> None:
    requests = [ask(seed=seed, steps=30) for seed in range(3)]

    async def main() -> list[Clip]:
        async with made(store=tmp_path, every_s=0.0) as engine:
            jobs = [await engine.submit(request) for request in requests]
            async for event in jobs[0]:
                if isinstance(event, StepDone) and event.step == 3:
                    break
        folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
        assert [path.name for path in folders] == sorted(job.id for job in jobs)
        for path in folders[1].glob("snapshot-*"):
            path.write_bytes(b"damaged")
        async with made(store=tmp_path) as engine:
            taken = {job.id: job for job in await engine.recover()}
            assert await code_of(taken[folders[1].name]) == "FV504"
            clips = [await taken[folders[at].name].result() for at in (0, 2)]
            for job in taken.values():
                await engine.forget(job)
            assert await engine.recover() == []
        return clips

    clips = asyncio.run(main())
    assert all(any(same(clip, alone(request)) for request in requests) for clip in clips)


def test_a_recovery_that_is_cancelled_loses_no_job(
    ask: Ask, alone: Callable[[Request], Clip], tmp_path: Path
) -> None:
    """It goes on beside the steps: who asks next is given what it found."""
    request = ask(frames=9)

    async def main() -> tuple[str, str, Clip]:
        async with made(store=tmp_path) as engine:
            first = await engine.submit(request)
            await first.result()
        async with made(store=tmp_path) as engine:
            begun, go = threading.Event(), threading.Event()
            whole = engine._recover

            def held(loop: asyncio.AbstractEventLoop) -> list[AsyncJob]:
                begun.set()
                go.wait(10)
                return whole(loop)

            engine._recover = held  # type: ignore[method-assign]
            given_up = asyncio.create_task(engine.recover())
            await asyncio.to_thread(begun.wait, 10)
            given_up.cancel()
            with suppress(asyncio.CancelledError):
                await given_up
            go.set()
            (job,) = await engine.recover()
            clip = await job.result()
            await engine.forget(job)
        return first.id, job.id, clip

    first, job, clip = asyncio.run(main())
    assert job == first and same(clip, alone(request))


def test_recoveries_side_by_side_are_given_each_job_once(ask: Ask, tmp_path: Path) -> None:
    async def main() -> tuple[list[str], list[str]]:
        async with made(store=tmp_path) as engine:
            jobs = [await engine.submit(ask(seed=seed)) for seed in range(3)]
            await engine.drain()
        async with made(store=tmp_path) as engine:
            found = await asyncio.gather(*(engine.recover() for _ in range(3)))
        return [job.id for job in jobs], [job.id for taken in found for job in taken]

    accepted, taken = asyncio.run(main())
    assert sorted(taken) == sorted(accepted)


def test_a_job_that_was_done_but_not_taken_is_done_after_a_restart(
    ask: Ask, alone: Callable[[Request], Clip], tmp_path: Path
) -> None:
    request = ask(frames=9)

    async def main() -> tuple[Clip, Clip, list[Any]]:
        async with made(store=tmp_path) as engine:
            first = await (await engine.submit(request)).result()
        async with made(store=tmp_path) as engine:
            (job,) = await engine.recover()
            events = [event async for event in job]
            assert [event async for event in job] == []  # nothing is left to read, and nobody waits for more
            assert [chunk.index for chunk in job.chunks] == [0, 1, 2]
            clip = await job.result()
            await engine.forget(job)
        return first, clip, events

    first, clip, events = asyncio.run(main())
    assert [type(event) for event in events] == [Started, Finished]
    assert same(first, clip) and same(clip, alone(request))


def test_a_chunk_that_the_disk_refused_is_made_and_told_again_after_a_restart(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = JobStore.emit

    def full(self: JobStore, job: str, artifact: str, index: int, part: Any) -> bool:
        if index == 1:
            raise ResourceError("FV403", name="output", rule="is full", remedy="Free some.")
        return emit(self, job, artifact, index, part)

    async def main() -> None:
        with monkeypatch.context() as disk:
            disk.setattr(JobStore, "emit", full)
            async with made(store=tmp_path, every_s=0.0) as engine:
                await (await engine.submit(ask(frames=9))).result()
        async with made(store=tmp_path, every_s=0.0) as engine:
            (job,) = await engine.recover()
            known = [chunk.index for chunk in job.chunks]
            told = [event.index async for event in job if isinstance(event, MediaChunk)]
            assert (known, told) == ([0, 2], [1])
            frames = np.concatenate([chunk.frames for chunk in job.chunks])
            assert np.array_equal(frames, (await job.result()).frames)

    asyncio.run(main())


def test_a_chunk_that_is_gone_from_the_store_is_told(ask: Ask, tmp_path: Path) -> None:
    async def main() -> None:
        async with made(store=tmp_path, every_s=0.0) as engine:
            await (await engine.submit(ask(frames=9))).result()
        (path,) = tmp_path.glob("*/emitted-video-00000001.npy")
        path.unlink()
        async with made(store=tmp_path) as engine:
            (job,) = await engine.recover()
            (note,) = [one for one in (await job.result()).used.adjusted if "chunks" in one]
            assert [chunk.index for chunk in job.chunks] == [0, 2]
            assert "[1]" in note and "the store" in note

    asyncio.run(main())


def test_what_was_agreed_holds_after_a_restart(ask: Ask, tmp_path: Path) -> None:
    """Who was cancelled stays so; deadlines go on; jobs come in the order of their acceptance."""

    async def main() -> None:
        async with made(store=tmp_path) as engine:
            jobs = [await engine.submit(ask(steps=500, seed=seed)) for seed in range(11)]
            late = await engine.submit(ask(steps=500), deadline_s=0.5, priority=Priority.BATCH)
            jobs[0].cancel()
        async with made(store=tmp_path) as engine:
            taken = await engine.recover()
            assert [job.id for job in taken] == [job.id for job in (*jobs[1:], late)]
            assert engine._keeper is not None
            assert engine._keeper.store.terms(late.id).priority is Priority.BATCH
            assert await code_of(taken[-1]) == "FV512"
            for job in taken:
                job.cancel()
            await engine.drain()
        assert sorted(path.name for path in tmp_path.iterdir()) == [".fv-jobs", ".lock"]

    asyncio.run(main())


def test_a_job_that_does_not_fit_here_stays_for_an_engine_that_it_fits(
    ask: Ask, alone: Callable[[Request], Clip], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ask()

    async def main() -> Clip:
        async with made(store=tmp_path) as engine:
            await engine.submit(request)
        with monkeypatch.context() as other:
            other.setattr(provenance, "plugin_name", lambda instance: "fv-wan21 0.2.0")
            async with made(store=tmp_path) as engine:
                (job,) = await engine.recover()
                assert await code_of(job) == "FV504"
        async with made(store=tmp_path) as engine:
            (job,) = await engine.recover()
            return await job.result()

    assert same(asyncio.run(main()), alone(request))


def test_a_snapshot_that_fails_is_told_and_harms_nobody(
    ask: Ask, alone: Callable[[Request], Clip], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [ask(seed=seed) for seed in range(2)]
    whole = Engine.snapshot

    def fails(self: Engine, job: Job) -> RequestSnapshot:
        if job.run.request.seed == 0:
            raise torch.OutOfMemoryError
        return whole(self, job)

    monkeypatch.setattr(Engine, "snapshot", fails)

    async def main() -> list[Clip]:
        async with made(store=tmp_path, every_s=0.0) as engine:
            jobs = [await engine.submit(request) for request in requests]
            return [await job.result() for job in jobs]

    clips = asyncio.run(main())
    assert all(map(same, clips, map(alone, requests)))
    noted = [any("store does not have all of it" in note for note in clip.used.adjusted) for clip in clips]
    assert noted == [True, False]


def test_a_defect_of_the_engine_ends_every_job_instead_of_hanging(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with made(store=tmp_path) as engine:
            jobs = [await engine.submit(ask(steps=500, seed=seed)) for seed in range(2)]
            monkeypatch.setattr(engine._dispatcher, "_runnable", lambda: 1 / 0)
            assert [await code_of(job) for job in jobs] == ["FV599", "FV599"]
            with pytest.raises(FvError, match="FV506"):
                await engine.submit(ask())
        assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2  # for a restart

    asyncio.run(main())


class Panic(BaseException):
    """As what Rust raises in Python when it panics."""


@pytest.mark.parametrize("hook", ["forward_batch", "batch_key"])
@pytest.mark.parametrize("raised", [Panic, SystemExit, asyncio.CancelledError])
def test_what_is_no_exception_ends_the_job_that_raised_it_and_no_other(
    hook: str,
    raised: type[BaseException],
    ask: Ask,
    alone: Callable[[Request], Clip],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> Clip:
        async with made() as engine:
            neighbour = await engine.submit(ask(steps=30))
            async for event in neighbour:
                if isinstance(event, StepDone) and event.node == "denoise":
                    break

            def boom(*given: Any) -> Any:
                raise raised("panicked")

            monkeypatch.setattr(engine._engine.instance(MODEL).component("text"), hook, boom)
            bad = await engine.submit(ask(seed=2, prompt="another"))
            with pytest.raises(FvError, match=f"FV502 component text.*{raised.__name__}: panicked"):
                await bad.result()
            return await neighbour.result()

    assert same(asyncio.run(main()), alone(ask(steps=30)))


@pytest.mark.parametrize("stored", [False, True])
def test_who_waits_for_an_engine_that_breaks_is_told(
    stored: bool, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results, events, figures, and a job that was accepted and not begun."""
    inside, freed = threading.Event(), threading.Event()

    def breaks() -> Any:
        inside.set()
        assert freed.wait(timeout=600)
        raise SystemExit("broken")

    async def main() -> None:
        async with made(store=tmp_path if stored else None) as engine:
            job = await engine.submit(ask(steps=500))
            events = aiter(job)
            assert isinstance(await anext(events), Started)
            monkeypatch.setattr(engine._dispatcher, "round", breaks)
            await asyncio.to_thread(inside.wait, 600)
            unbegun = await engine.submit(ask(seed=2))
            counting, draining = asyncio.create_task(held(engine)), asyncio.create_task(engine.drain())
            await asyncio.sleep(0)
            freed.set()
            told = [event async for event in events][-1]
            assert isinstance(told, Failed) and told.code == "FV599"
            (failed,) = [event async for event in unbegun]
            assert isinstance(failed, Failed) and failed.code == "FV599"
            assert [await code_of(one) for one in (job, unbegun)] == ["FV599", "FV599"]
            with pytest.raises(FvError, match="FV599"):
                await counting
            await draining
            with pytest.raises(
                FvError, match=r"FV506 engine: was stopped by a defect \(.*SystemExit: broken"
            ):
                await engine.counters()
        assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2 * stored  # for a restart

    asyncio.run(main())


def test_a_deadline_may_be_further_away_than_a_thread_can_wait(ask: Ask) -> None:
    async def main() -> None:
        async with made() as engine:
            job = await engine.submit(ask(frames=81), deadline_s=1e10)
            async for event in job:
                if isinstance(event, MediaChunk) and event.index == 0:
                    while (
                        not engine._dispatcher.idle
                    ):  # waits for its reader, and the thread for its deadline
                        await asyncio.sleep(0)
                    await engine.counters()
            assert len((await job.result()).frames) == 81
            with pytest.raises(FvError, match="FV310 deadline_s"):
                await engine.submit(ask(), deadline_s=10**400)

    asyncio.run(main())


def test_another_event_loop_can_only_leave(ask: Ask) -> None:
    """The loop in which it was entered has gone meanwhile, and a job of that loop goes on."""
    engine = made()

    async def enters() -> AsyncJob:
        await engine.__aenter__()
        with pytest.raises(FvError, match="FV513 engine: was entered already"):
            await engine.__aenter__()
        return await engine.submit(ask(steps=3))

    job = asyncio.run(enters())

    async def elsewhere() -> None:
        asked = (
            engine.submit(ask()), engine.recover(), engine.counters(), engine.drain(), engine.forget(job),
            job.result(), anext(aiter(job)),
        )  # fmt: skip
        for one in asked:
            with pytest.raises(FvError, match=r"FV513 .* is used from another event loop"):
                await one
        await engine.__aexit__(None, None, None)

    asyncio.run(elsewhere())
    assert engine._thread.broken is None


def test_a_job_has_one_reader_at_a_time(ask: Ask) -> None:
    async def main() -> None:
        async with made() as engine:
            job = await engine.submit(ask(steps=30))
            async for _ in job:
                break

            async def read() -> list[Any]:
                return [event async for event in job]

            reading = [asyncio.create_task(read()) for _ in range(2)]
            await asyncio.wait(reading)
            told, refused = reading[0].result(), reading[1].exception()
            assert isinstance(told[-1], Finished)
            assert isinstance(refused, FvError) and refused.code == "FV513"

    asyncio.run(main())


def test_a_job_that_is_done_is_cancelled_no_more(ask: Ask) -> None:
    async def main() -> None:
        async with made() as engine:
            job, other = await engine.submit(ask()), await engine.submit(ask(seed=2, steps=500))
            await job.result()
            for one in (job, other):
                one.cancel()
            assert await code_of(other) == "FV510"
            assert (job.cancelled, other.cancelled) == (False, True)

    asyncio.run(main())


def test_all_jobs_are_done_when_the_engine_is_drained(ask: Ask) -> None:
    async def main() -> None:
        async with made() as engine:
            job = await engine.submit(ask())
            while engine._jobs:  # the event loop is not told before it is let go on
                time.sleep(0.001)
            await engine.drain()
            assert job.done

    asyncio.run(main())


def test_who_stops_waiting_for_an_acceptance_is_not_served(ask: Ask, tmp_path: Path) -> None:
    async def main() -> None:
        async with made(store=tmp_path) as engine:
            before = await engine.submit(ask())
            submitting = asyncio.create_task(engine.submit(ask(steps=500)))
            await asyncio.sleep(0)
            submitting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await submitting
            await before.result()
            await engine.recover()  # comes after it in the intake
            await engine.drain()
            assert len(engine._keeper.store.jobs()) == 1  # type: ignore[union-attr]

    asyncio.run(main())


def test_an_engine_refuses_what_it_cannot_mean(ask: Ask) -> None:
    for options in (
        {"accepted": 0},
        {"accepted": True},
        {"every_s": -1.0},
        {"every_s": float("nan")},
        {"reuse": "no"},
    ):
        with pytest.raises(FvError, match="FV310"):
            made(**options)

    async def main() -> None:
        with pytest.raises(FvError, match="FV506"):
            await made().submit(ask())  # was not entered
        async with made() as engine:
            for terms in ({"priority": "urgent"}, {"deadline_s": -1.0}, {"deadline_s": float("inf")}):
                with pytest.raises(FvError, match="FV310"):
                    await engine.submit(ask(), **terms)
            wrong: Any = "a red ball"
            with pytest.raises(FvError, match="FV310 request: is of type str"):
                await engine.submit(wrong)
            assert await held(engine) == (0, 0, 0, 0, 0)
        async with made(memory=1000) as engine:
            with pytest.raises(FvError, match="FV401"):
                await engine.submit(ask())

    asyncio.run(main())


def test_a_job_is_stored_before_a_step_of_a_kind_that_was_never_measured(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a step may be long: a crash in it would repeat it and what was not stored before it."""
    monkeypatch.setenv("FV_HOME", str(tmp_path / "home"))
    stored: dict[str, list[str]] = {}
    put = JobStore.put

    def recorded(self: JobStore, job: str, snapshot: RequestSnapshot) -> None:
        stored.setdefault(job, []).append(snapshot.header.turn)
        put(self, job, snapshot)

    monkeypatch.setattr(JobStore, "put", recorded)

    async def main() -> None:
        async with made(store=tmp_path / "store", every_s=1e6) as engine:
            for seed in (1, 2):
                await (await engine.submit(ask(seed=seed, prompt=f"circle {seed}"))).result()

    asyncio.run(main())
    unmeasured, measured = stored.values()
    assert unmeasured == [
        "encode",
        "encode_negative",
        "denoise",
        "decode",
        "decode",
    ]  # accepted first, done last
    assert measured == ["encode", "decode"]


def test_two_engines_do_not_share_a_store(ask: Ask, tmp_path: Path) -> None:
    async def main() -> None:
        async with made(store=tmp_path):
            with pytest.raises(FvError, match="FV411"):
                async with made(store=tmp_path):
                    pass
        async with made(store=tmp_path) as engine:
            await (await engine.submit(ask())).result()

    asyncio.run(main())


def test_a_job_tells_when_it_should_end_once_its_steps_were_measured(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path))

    async def main() -> None:
        async with made() as engine:
            first = await engine.submit(ask(steps=3))
            assert first.eta is None
            await first.result()
            assert first.eta == 0.0
            slow = await engine.submit(ask(steps=400, seed=2), priority=Priority.BATCH)
            quick = await engine.submit(ask(steps=3, seed=3))
            async for event in quick:
                assert isinstance(event, Started)
                break
            assert slow.eta is not None and quick.eta is not None
            assert slow.eta > 5 * quick.eta  # it is last, and the quick one is ahead of it
            early = slow.eta
            await quick.result()
            async for event in slow:
                if isinstance(event, StepDone) and event.step == 300:
                    break
            assert slow.eta < early
            slow.cancel()

    asyncio.run(main())


def test_no_more_seconds_of_work_are_let_in_than_is_stated(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path))

    async def main() -> None:
        async with made(backlog_s=1e-6) as engine:
            for _ in range(2):  # nothing was measured at first, and later it is the only one
                await (await engine.submit(ask(steps=3))).result()
            going = await engine.submit(ask(steps=400))
            with pytest.raises(FvError, match="at most 1e-06 seconds of work") as refused:
                await engine.submit(ask(steps=3))
            assert refused.value.code == "FV410"
            going.cancel()
            assert await code_of(going) == "FV510"

    asyncio.run(main())


def test_another_policy_orders_the_steps(ask: Ask) -> None:
    """First come, first served, where fv's own order would let the first one go last."""
    ended: list[int] = []

    async def ends(job: AsyncJob, seed: int) -> None:
        await job.result()
        ended.append(seed)

    async def main() -> None:
        async with made(policy=lambda times: Fifo()) as engine:
            jobs = [
                await engine.submit(ask(seed=seed, steps=steps)) for seed, steps in ((1, 30), (2, 2), (3, 9))
            ]
            await asyncio.gather(*(ends(job, seed) for seed, job in enumerate(jobs, start=1)))

    asyncio.run(main())
    assert ended == [1, 2, 3]
