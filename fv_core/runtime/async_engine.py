"""The asynchronous engine: requests come from an event loop and are computed on a thread of their own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from fv_core.errors import Cancelled, FvError, RequestError, ResourceError
from fv_core.media import Clip
from fv_core.request import CancelScope, MediaChunk, Numerics, Priority, Request
from fv_core.runtime.async_job import AsyncJob, misused, require_loop
from fv_core.runtime.batching import MAX_BATCH
from fv_core.runtime.dispatch import Dispatcher, Entry
from fv_core.runtime.engine import Engine
from fv_core.runtime.engine_options import checked_count, checked_priority, checked_seconds
from fv_core.runtime.engine_thread import EngineThread, shut
from fv_core.runtime.faults import unforeseen
from fv_core.runtime.scheduler.contract import Scheduler, StepTimes
from fv_core.runtime.scheduler.joining import Joining
from fv_core.runtime.scheduler.remaining import LeastRemaining
from fv_core.runtime.snapshots.job_store import JobStore
from fv_core.runtime.snapshots.keeper import EVERY_S, Keeper, KeptJob
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.runtime.snapshots.terms import Terms
from fv_core.runtime.stores import Counters

T = TypeVar("T")

ACCEPTED: Final = 256
"""Jobs that are taken on at once unless an engine is told otherwise."""
_NEVER_FITS: Final = "FV401"


class AsyncEngine:
    """An `Engine` behind an event loop. Use it as an asynchronous context manager, once: leaving it cancels what still
    runs. Whatever is asked of it from another event loop than it was entered in, leaving excepted, is refused (FV513).

    Whose step is next follows from what is left of each job and how urgent it is (`runtime.scheduler`). Requests are
    checked beside the steps, so that who submits one waits for none.

    Args:
        accepted: the most jobs at once; one more is refused.
        backlog_s: the most predicted seconds of work at once; a job beyond it is refused unless it is the only one.
            Nobody waits longer than `scheduler.remaining.Patience.bound` then says. Requests count nothing with steps
            of a kind that was never measured.
        policy: makes the scheduler from what steps are predicted to take; None is fv's own order.
        store: folder in which accepted jobs outlive the process; `recover` takes them on again. One engine at a time
            uses a folder.
        every_s: with a store, a crash repeats at most the longer of one step and this many seconds of a job's steps.
        engine: keywords of `Engine`.
    """

    def __init__(
        self,
        models: Any = (),
        *,
        accepted: int = ACCEPTED,
        backlog_s: float | None = None,
        policy: Callable[[StepTimes], Scheduler] | None = None,
        store: str | Path | None = None,
        every_s: float = EVERY_S,
        **engine: Any,
    ) -> None:
        self._accepted = checked_count("accepted", accepted)
        self._engine = Engine(models, **engine)
        self._certified = bool(engine.get("require_certified"))
        times = self._engine.pricing.times
        joining = Joining(times=times, max_rows=engine.get("max_batch", MAX_BATCH))
        scheduler = LeastRemaining(joining) if policy is None else policy(times)
        self._dispatcher = Dispatcher(self._engine, scheduler)
        self._backlog_s = None if backlog_s is None else checked_seconds("backlog_s", backlog_s)
        self._thread = EngineThread(self._engine, self._dispatcher, ended=self._ended, broke=self._broke)
        every_s = checked_seconds("every_s", every_s)
        self._keeper = (
            None if store is None else Keeper(JobStore(store), every_s=every_s, woken=self._thread.wake)
        )
        self._intake = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fv-intake")
        self._jobs: dict[str, AsyncJob] = {}
        self._untaken: list[AsyncJob] = []  # recovered, but not handed to anybody yet
        self._left: set[str] = set()  # ended by leaving, which is no reason to forget them
        self._gate = threading.Lock()  # no job is taken on by an engine that has been told to end
        self._draining = self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it was entered

    async def submit(
        self,
        request: Request,
        *,
        numerics: Numerics | str | None = None,
        priority: Priority = Priority.STANDARD,
        deadline_s: float | None = None,
    ) -> AsyncJob:
        """Takes a request on; its job tells the rest. Cancelling who awaits this cancels the job.

        Args:
            numerics: for a request that does not say.
            deadline_s: seconds from now after which the job is cancelled.

        Raises:
            ResourceError: FV410, as many jobs, or seconds of work, as are accepted at once are on their way. RunError:
                FV506, the engine is draining, closed or was not entered. FvError: whatever refuses the request.
        """
        loop = self._own_loop()
        deadline_s = None if deadline_s is None else checked_seconds("deadline_s", deadline_s)
        terms = Terms.now(checked_priority(priority), deadline_s)
        accepting = self._beside(lambda: self._accept(request, numerics, terms, loop))
        try:
            return await asyncio.wrap_future(accepting)
        except asyncio.CancelledError:
            accepting.add_done_callback(_withdraw)
            raise

    async def drain(self) -> None:
        """Refuses further requests and waits until all that were accepted have ended."""
        self._own_loop()
        with self._gate:
            self._draining = True
            jobs = tuple(self._jobs.values())
        for job in jobs:
            try:
                await job.result()
            except FvError:
                continue  # its own submitter is told
        await asyncio.sleep(0)  # those that had left `_jobs` are done once the loop gets to it

    async def recover(self) -> list[AsyncJob]:
        """Takes on the jobs of the store that are not on their way, in the order of their acceptance: those of a
        process that was killed or closed. Priorities and deadlines are as they were.

        Chunks that were recorded already are not told again: they are in `job.chunks`, and the clip has them. A job
        that cannot go on here has failed, and stays in the store until it is forgotten.

        Raises:
            RequestError: FV310, the engine has no store.
        """
        loop = self._own_loop()
        await asyncio.wrap_future(self._beside(lambda: self._find(loop)))
        with self._gate:  # those too that a call found which was cancelled meanwhile
            taken, self._untaken = self._untaken, []
        return taken

    async def forget(self, job: AsyncJob) -> None:
        """Removes a job that is done from the store: its clip was taken. Those that failed here are not kept."""
        self._own_loop()
        if self._keeper is not None and job.done:
            await asyncio.wrap_future(self._beside(partial(self._keeper.store.end, job.id)))

    async def counters(self) -> Counters:
        """As `Engine.counters`."""
        self._own_loop()
        return await asyncio.wrap_future(self._thread.ask(self._engine.counters))

    async def __aenter__(self) -> Self:
        if self._closed:
            raise shut("is closed")
        if self._loop is not None:
            raise misused("engine", "was entered already", "Enter it once, and share it.")
        if self._keeper is not None:
            self._keeper.store.claim()
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._gate:
            self._draining = True
        for job in tuple(self._jobs.values()):
            if not job.cancelled:
                self._left.add(job.id)
                job.cancel()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._gate:
            self._closed = True
        self._intake.shutdown(wait=True)
        self._thread.close()
        if self._keeper is not None:
            self._keeper.close()

    def _beside(self, what: Callable[[], T]) -> Future[T]:
        """Does `what` on the intake's thread, one after another, beside the steps."""
        with self._gate:
            if self._closed:
                raise shut("is closed")
            return self._intake.submit(_foreseen, what)

    def _accept(
        self,
        request: Request,
        numerics: Numerics | str | None,
        terms: Terms,
        loop: asyncio.AbstractEventLoop,
    ) -> AsyncJob:
        self._require_open()
        self._thread.require_going()
        if len(self._jobs) >= self._accepted:
            raise _full(len(self._jobs), "jobs are on their way, which is as many as this engine accepts")
        resting = self._resting(request, numerics)
        seconds = self._engine.quote(resting.header).eta_s or 0.0
        self._check_backlog(seconds)
        kept = None
        if self._keeper is not None:
            kept = self._keeper.accept(resting.header.request_id, terms, resting)
        try:
            return self._take_on(resting, terms, kept, loop, (), seconds=seconds)
        except FvError:
            if self._keeper is not None:
                self._keeper.store.end(resting.header.request_id)
            raise

    def _resting(self, request: Request, numerics: Numerics | str | None) -> RequestSnapshot:
        accept = partial(self._engine.accept, request, numerics=numerics)
        try:
            resting = accept()
        except ResourceError as refused:
            if refused.code != _NEVER_FITS:
                raise
            resting = self._thread.ask(accept).result()  # weights that were being loaded counted twice
        if self._certified:
            model = resting.header.request.model
            self._thread.ask(lambda: self._engine.instance(model)).result()  # loads what it compares
        return resting

    def _check_backlog(self, seconds: float) -> None:
        ahead = [job.left_s for job in tuple(self._jobs.values())]
        if self._backlog_s is not None and ahead and sum(ahead) + seconds > self._backlog_s:
            rule = f"seconds of work are on their way, and this request is {seconds:.1f} more"
            raise _full(round(sum(ahead), 1), rule, f"at most {self._backlog_s:g} seconds of work")

    def _find(self, loop: asyncio.AbstractEventLoop) -> None:
        found = self._recover(loop)
        with self._gate:
            self._untaken += found

    def _recover(self, loop: asyncio.AbstractEventLoop) -> list[AsyncJob]:
        if self._keeper is None:
            raise _unstored()
        self._require_open()
        store, jobs, found = self._keeper.store, list[AsyncJob](), list[tuple[float, str, Terms]]()
        for ident in store.jobs():
            if ident not in self._jobs:
                try:
                    terms = store.terms(ident)
                    found.append((terms.accepted, ident, terms))
                except FvError as error:
                    jobs.append(self._lost(ident, error, loop))
        return jobs + [self._taken_up(ident, terms, self._keeper, loop) for _, ident, terms in sorted(found)]

    def _taken_up(
        self, ident: str, terms: Terms, keeper: Keeper, loop: asyncio.AbstractEventLoop
    ) -> AsyncJob:
        try:
            resting = keeper.store.newest(ident)
            told = [
                MediaChunk(request_id=ident, index=index, frames=frames)
                for index, frames in keeper.store.emitted(ident, "video")
            ]
        except BaseException as error:  # one that is damaged is not its neighbours' fault
            return self._lost(ident, unforeseen(error, f"stored job {ident}"), loop)
        return self._take_on(resting, terms, keeper.kept(ident, taken_up=True), loop, told)

    def _lost(self, ident: str, error: FvError, loop: asyncio.AbstractEventLoop) -> AsyncJob:
        """A stored job that cannot be read; it stays stored."""
        job = AsyncJob(ident, CancelScope(), loop, woken=self._thread.wake)
        job.end(error)
        return job

    def _take_on(
        self,
        resting: RequestSnapshot,
        terms: Terms,
        kept: KeptJob | None,
        loop: asyncio.AbstractEventLoop,
        told: Sequence[MediaChunk],
        *,
        seconds: float = 0.0,
    ) -> AsyncJob:
        cancel = CancelScope(deadline=terms.monotonic_deadline())
        job = AsyncJob(resting.header.request_id, cancel, loop, told=told, woken=self._thread.wake)
        job.expect(None, seconds)
        with self._gate:
            self._require_open()
            self._jobs[job.id] = job
            try:
                self._thread.ask(partial(self._begin, resting, terms.priority, kept, job, cancel))
            except FvError:
                del self._jobs[job.id]
                raise
        return job

    def _begin(
        self,
        resting: RequestSnapshot,
        priority: Priority,
        kept: KeptJob | None,
        job: AsyncJob,
        cancel: CancelScope,
    ) -> None:
        """On the engine's thread."""
        try:
            self._engine.instance(resting.header.request.model)
            quote = self._engine.quote(resting.header)
        except BaseException as error:
            fault = unforeseen(error, f"the start of job {job.id}")
            self._end(job, fault, kept, stays=kept is not None and kept.taken_up)
            return
        self._dispatcher.add(
            Entry(
                id=job.id, resting=resting, quote=quote, turn=resting.header.turn, priority=priority,
                arrived=time.monotonic(), cancel=cancel,
                tell=job.tell if kept is None else partial(kept.tell, tell=job.tell),
                lags=lambda: job.lags, expect=job.expect, kept=kept,
            )
        )  # fmt: skip

    def _ended(self, entry: Entry, outcome: Clip | FvError) -> None:
        """On the engine's thread. What failed is forgotten, unless it may go on after a restart."""
        left = entry.id in self._left
        unbegun = entry.kept is not None and entry.kept.taken_up and not entry.announced
        stays = left or isinstance(outcome, Clip) or (unbegun and not isinstance(outcome, Cancelled))
        self._end(self._jobs[entry.id], outcome, entry.kept, stays=stays)

    def _broke(self, error: FvError) -> None:
        """On the engine's thread. Ends every job that has not ended, begun or not; all of them stay for a restart."""
        for job in tuple(self._jobs.values()):
            settle = partial(self._settle, job, error, None)
            if self._keeper is None:
                settle()
            else:
                self._keeper.then(job.id, settle)

    def _end(self, job: AsyncJob, outcome: Clip | FvError, kept: KeptJob | None, *, stays: bool) -> None:
        settle = partial(self._settle, job, outcome)
        if kept is None:
            settle(None)
        elif stays:
            kept.then(settle)
        else:
            kept.drop(settle)

    def _settle(self, job: AsyncJob, outcome: Clip | FvError, unkept: FvError | None) -> None:
        self._left.discard(job.id)
        if isinstance(outcome, Clip) and unkept is not None:
            note = f"the store does not have all of it: {unkept.message}"
            outcome = replace(outcome, used=replace(outcome.used, adjusted=(*outcome.used.adjusted, note)))
        with self._gate:
            self._jobs.pop(job.id, None)  # a job that was ending when the engine broke is settled twice
            job.end(outcome)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that runs.

        Raises:
            RunError: FV513, it is another than the one in which the engine was entered.
        """
        if self._loop is not None:
            require_loop(self._loop, "engine")
        return asyncio.get_running_loop()

    def _require_open(self) -> None:
        if self._draining:
            raise shut("takes no more requests: it is about to close")


def _foreseen(what: Callable[[], T]) -> T:
    try:
        return what()
    except BaseException as error:
        raise unforeseen(error, "the engine") from error


def _withdraw(accepting: Future[AsyncJob]) -> None:
    """Nobody waits for it any more, so nobody could end it."""
    if not accepting.cancelled() and accepting.exception() is None:
        accepting.result().cancel()


def _unstored() -> RequestError:
    return RequestError(
        "FV310",
        name="store",
        rule="is not there to recover jobs from",
        remedy="Make the engine with store=FOLDER.",
    )


def _full(value: float, rule: str, legal: str = "") -> ResourceError:
    return ResourceError(
        "FV410",
        name="queue",
        value=value,
        rule=rule,
        legal=legal,
        remedy="Try again when one has ended, or make the engine with a larger `accepted` or `backlog_s`.",
    )
