"""The asynchronous engine: requests come from an event loop and are computed on a thread of their own."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from fv_core.errors import FvError, ResourceError, RunError
from fv_core.media import Clip
from fv_core.request import CancelScope, Numerics, Request
from fv_core.request.priority import Priority
from fv_core.runtime.async_job import AsyncJob
from fv_core.runtime.dispatch import Dispatcher, Entry
from fv_core.runtime.engine import Engine
from fv_core.runtime.faults import unforeseen
from fv_core.runtime.pricing import Pricing
from fv_core.runtime.scope import Counters

ACCEPTED: Final = 256
"""Jobs that are taken on at once unless an engine is told otherwise."""


class AsyncEngine:
    """An `Engine` behind an event loop. Use it as an asynchronous context manager: leaving it cancels what still runs.

    Whose step is next follows from what is left of each job and how urgent it is (`runtime.scheduler`).

    Args:
        accepted: the most jobs at once; one more is refused.
        engine: keywords of `Engine`.
    """

    def __init__(self, models: Any = (), *, accepted: int = ACCEPTED, **engine: Any) -> None:
        self._engine = Engine(models, **engine)
        self._pricing = Pricing()
        self._dispatcher = Dispatcher(self._engine, pricing=self._pricing)
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

    async def _on_thread(self, ask: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

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
        cancel = CancelScope()
        instance = self._engine.instance(resting.header.request.model)
        steps = self._pricing.steps(
            instance.card, resting.header.request, dtype=str(instance.dtype), device=str(instance.device)
        )
        job = AsyncJob(resting.header.request_id, cancel, loop)
        self._jobs[job.id] = job
        self._dispatcher.add(
            Entry(
                id=job.id, resting=resting, steps=steps, priority=priority, arrived=time.monotonic(),
                cost=self._pricing.left(steps, {}), cancel=cancel, pricing=self._pricing, tell=job.tell,
                deadline=deadline,
            )
        )  # fmt: skip
        return job

    def _work(self) -> None:
        with self._engine:
            while self._dispatcher.entries or not self._closing:
                self._answer(wait=not self._dispatcher.entries)
                for entry in self._dispatcher.round():
                    self._end(entry)
            with self._gate:
                self._ended = True
                self._answer(wait=False)

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
        job.end(outcome)

    def _clip(self, entry: Entry) -> Clip:
        if entry.error is not None:
            raise entry.error
        assert entry.job is not None
        try:
            return self._engine.clip(entry.job)
        finally:
            entry.job.close()


def _settle(answer: asyncio.Future[Any], found: Any, error: FvError | None) -> None:
    if answer.cancelled():
        return
    if error is None:
        answer.set_result(found)
    else:
        answer.set_exception(error)


def _shut(rule: str) -> RunError:
    return RunError("FV506", name="engine", rule=rule, remedy="Make a new engine.")


def _full(most: int) -> ResourceError:
    return ResourceError(
        "FV410",
        name="queue",
        value=most,
        rule="jobs are on their way, which is as many as this engine accepts",
        remedy="Try again when one has ended, or make the engine with a larger `accepted`.",
    )
