"""The asynchronous engine: requests come from an event loop and are computed on a thread of their own."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from fv_core.errors import FvError, RequestError, ResourceError, RunError
from fv_core.media import Clip
from fv_core.request import CancelScope, MediaChunk, Numerics, Priority, Request, RequestEvent
from fv_core.runtime.async_job import AsyncJob
from fv_core.runtime.dispatch import Dispatcher, Entry
from fv_core.runtime.engine import Engine
from fv_core.runtime.faults import unforeseen
from fv_core.runtime.job import Job
from fv_core.runtime.scheduler.pricing import Pricing
from fv_core.runtime.snapshots.job_store import JobStore
from fv_core.runtime.snapshots.keeper import EVERY_S, Keeper
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.runtime.stores import Counters

T = TypeVar("T")

ACCEPTED: Final = 256
"""Jobs that are taken on at once unless an engine is told otherwise."""


class AsyncEngine:
    """An `Engine` behind an event loop. Use it as an asynchronous context manager: leaving it cancels what still runs.

    Whose step is next follows from what is left of each job and how urgent it is (`runtime.scheduler`).

    Args:
        accepted: the most jobs at once; one more is refused.
        store: folder in which accepted jobs outlive the process; `recover` takes them on again.
        every_s: with a store, a crash repeats at most the longer of one step and this many seconds of a job.
        engine: keywords of `Engine`.
    """

    def __init__(
        self,
        models: Any = (),
        *,
        accepted: int = ACCEPTED,
        store: str | Path | None = None,
        every_s: float = EVERY_S,
        **engine: Any,
    ) -> None:
        self._engine = Engine(models, **engine)
        self._pricing = Pricing()
        self._keeper = None if store is None else Keeper(JobStore(store), every_s=every_s)
        self._dispatcher = Dispatcher(self._engine, pricing=self._pricing, keeper=self._keeper)
        self._accepted = accepted
        self._jobs: dict[str, AsyncJob] = {}
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._draining = self._closing = self._ended = False
        self._gate = threading.Lock()  # nothing is asked of a thread that has answered for the last time
        self._thread = threading.Thread(target=self._work, name="fv-engine", daemon=True)

    async def submit(
        self,
        request: Request,
        *,
        numerics: Numerics | str | None = None,
        priority: Priority = Priority.STANDARD,
        deadline_s: float | None = None,
    ) -> AsyncJob:
        """Takes a request on; its job tells the rest.

        Args:
            numerics: for a request that does not say.
            deadline_s: seconds from now after which the job is cancelled.

        Raises:
            ResourceError: FV410, as many jobs as are accepted at once are on their way. RunError: FV506, the engine
                is draining or closed. FvError: whatever refuses the request.
        """
        loop = asyncio.get_running_loop()
        deadline = None if deadline_s is None else time.monotonic() + deadline_s
        return await self._on_thread(lambda: self._accept(request, numerics, priority, deadline, loop))

    async def drain(self) -> None:
        """Refuses further requests and waits until all that were accepted have ended."""
        self._draining = True
        for job in tuple(self._jobs.values()):
            try:
                await job.result()
            except FvError:
                continue  # its own submitter is told

    async def recover(self) -> list[AsyncJob]:
        """Takes on the jobs of the store that are not on their way: those of a process that was killed or closed.

        Chunks that were recorded already are not told again; the clip has them. A job that cannot go on has failed.

        Raises:
            RequestError: FV310, the engine has no store.
        """
        loop = asyncio.get_running_loop()
        return await self._on_thread(lambda: self._recover(loop))

    async def forget(self, job: AsyncJob) -> None:
        """Removes a job that is done from the store: its clip was taken. Failed ones are not kept."""
        if self._keeper is not None and job.done:
            await self._on_thread(partial(self._keeper.forget, job.id))

    async def counters(self) -> Counters:
        """As `Engine.counters`."""
        return await self._on_thread(self._engine.counters)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draining = self._closing = True
        for job in tuple(self._jobs.values()):
            job.cancel()
        self._asked.put(lambda: None)
        await asyncio.to_thread(self._thread.join)

    async def _on_thread(self, ask: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                found = ask()
            except Exception as error:
                loop.call_soon_threadsafe(_settle, answer, None, unforeseen(error, "the engine"))
            else:
                loop.call_soon_threadsafe(_settle, answer, found, None)

        with self._gate:
            if self._ended:
                raise _shut("is closed")
            self._asked.put(run)
        return await answer

    def _accept(
        self,
        request: Request,
        numerics: Numerics | str | None,
        priority: Priority,
        deadline: float | None,
        loop: asyncio.AbstractEventLoop,
    ) -> AsyncJob:
        if self._draining:
            raise _shut("takes no more requests: it is about to close")
        if len(self._jobs) >= self._accepted:
            raise _full(self._accepted)
        resting = self._engine.accept(request, numerics=numerics)
        if self._keeper is not None:
            self._keeper.accept(resting.header.request_id, resting)
        return self._take_on(resting, priority, deadline, loop)

    def _recover(self, loop: asyncio.AbstractEventLoop) -> list[AsyncJob]:
        if self._keeper is None:
            raise _unstored()
        idents = [ident for ident in self._keeper.store.jobs() if ident not in self._jobs]
        return [self._taken_up(ident, self._keeper, loop) for ident in idents]

    def _taken_up(self, ident: str, keeper: Keeper, loop: asyncio.AbstractEventLoop) -> AsyncJob:
        try:
            return self._take_on(keeper.take_up(ident), Priority.STANDARD, None, loop)
        except Exception as error:  # one that is damaged is not its neighbours' fault
            job = AsyncJob(ident, CancelScope(), loop)
            job.fail(unforeseen(error, f"stored job {ident}"))
            return job

    def _take_on(
        self,
        resting: RequestSnapshot,
        priority: Priority,
        deadline: float | None,
        loop: asyncio.AbstractEventLoop,
    ) -> AsyncJob:
        request, cancel = resting.header.request, CancelScope()
        instance = self._engine.instance(request.model)
        steps = self._pricing.steps(
            instance.card, request, dtype=str(instance.dtype), device=str(instance.device)
        )
        job = AsyncJob(resting.header.request_id, cancel, loop)
        entry = Entry(
            id=job.id, resting=resting, steps=steps, priority=priority, arrived=time.monotonic(),
            cost=self._pricing.left(steps, {}), cancel=cancel, pricing=self._pricing, tell=job.tell,
            deadline=deadline, done={one.node: one.total for one in steps if one.node in resting.header.finished},
        )  # fmt: skip
        if self._keeper is not None:
            entry.tell = partial(self._recorded, self._keeper, entry, job)
        self._jobs[job.id] = job
        self._dispatcher.add(entry)
        return job

    def _recorded(self, keeper: Keeper, entry: Entry, job: AsyncJob, event: RequestEvent) -> None:
        """Tells an event, unless it is a chunk that was recorded before a crash."""
        try:
            known = isinstance(event, MediaChunk) and not keeper.emit(entry.id, event)
        except FvError as error:
            entry.unkept, known = error, False
        if not known:
            job.tell(event)

    def _work(self) -> None:
        with self._engine:
            while self._dispatcher.entries or not self._closing:
                self._answer(wait=not self._dispatcher.entries)
                for entry in self._dispatcher.round():
                    self._end(entry)
            with self._gate:
                self._ended = True
                self._answer(wait=False)
            if self._keeper is not None:
                self._keeper.close()

    def _answer(self, *, wait: bool) -> None:
        """Does what was asked for since the last round; with `wait` at least one thing."""
        while wait or not self._asked.empty():
            self._asked.get()()
            wait = False

    def _end(self, entry: Entry) -> None:
        job = self._jobs.pop(entry.id)
        try:
            outcome: Clip | FvError = self._clip(entry)
        except Exception as error:
            outcome = unforeseen(error, f"the clip of job {entry.id}")
            if self._keeper is not None and not self._closing:
                self._keeper.forget(entry.id)
        job.end(outcome)

    def _clip(self, entry: Entry) -> Clip:
        if entry.error is not None:
            raise entry.error
        assert entry.job is not None
        try:
            if self._keeper is not None:
                self._finish(entry, entry.job, self._keeper)
            return self._engine.clip(entry.job)
        finally:
            entry.job.close()

    def _finish(self, entry: Entry, job: Job, keeper: Keeper) -> None:
        try:
            keeper.finish(entry.id, self._engine.snapshot(job))
        except FvError as error:
            entry.unkept = error
        if entry.unkept is not None:
            job.run.notes += (f"the store does not have all of it: {entry.unkept.message}",)


def _settle(answer: asyncio.Future[T], found: T | None, error: FvError | None) -> None:
    if answer.cancelled():
        return
    if error is None:
        answer.set_result(cast(T, found))
    else:
        answer.set_exception(error)


def _shut(rule: str) -> RunError:
    return RunError("FV506", name="engine", rule=rule, remedy="Make a new engine.")


def _unstored() -> RequestError:
    return RequestError(
        "FV310",
        name="store",
        rule="is not there to recover jobs from",
        remedy="Make the engine with store=FOLDER.",
    )


def _full(most: int) -> ResourceError:
    return ResourceError(
        "FV410",
        name="queue",
        value=most,
        rule="jobs are on their way, which is as many as this engine accepts",
        remedy="Try again when one has ended, or make the engine with a larger `accepted`.",
    )
