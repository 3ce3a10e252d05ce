"""A job as its submitter sees it: events, a result, a way to end it."""

from __future__ import annotations

import asyncio
import time
from bisect import insort
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from fv_core.errors import Cancelled, FvError, RunError
from fv_core.media import Clip
from fv_core.request import CancelScope, Failed, Finished, MediaChunk, RequestEvent

T = TypeVar("T")

AHEAD: Final = 8
"""Chunks that a job may be ahead of who reads its events; with so many unread it waits for its reader."""


class AsyncJob:
    """A request that was accepted: iterate over its events, await its result, cancel it.

    Events are kept until they are read. While somebody iterates and is `AHEAD` chunks behind, the job takes no step;
    its neighbours do. While nobody iterates, or somebody awaits the result, it waits for nobody, and what is unread
    comes to its clip at most.

    Args:
        told: chunks that were told before a restart.
        woken: called when a job that waited may go on, or is to end.
    """

    def __init__(
        self,
        ident: str,
        cancel: CancelScope,
        loop: asyncio.AbstractEventLoop,
        *,
        told: Sequence[MediaChunk] = (),
        woken: Callable[[], None],
    ) -> None:
        self.id = ident
        self._cancel = cancel
        self._loop = loop
        self._woken = woken
        self._events: asyncio.Queue[RequestEvent] = asyncio.Queue()
        self._chunks = list(told)
        self._sent = self._read = 0  # chunks: counted by the thread that tells, and by the loop's
        self._readers = self._awaiting = 0
        self._over = self._reading = False
        self._clip: asyncio.Future[Clip] = loop.create_future()
        self._clip.add_done_callback(_retrieved)
        self._ends: float | None = None
        self.left_s = 0.0
        """Seconds of the device that it is predicted to take still, 0 where that is not known."""

    @property
    def done(self) -> bool:
        return self._clip.done()

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, or its deadline has passed, before it was done."""
        if self.done:
            return isinstance(self._clip.exception(), Cancelled)
        return self._cancel.cancelled

    @property
    def chunks(self) -> tuple[MediaChunk, ...]:
        """What is final of its clip, in order, and stays so however it ends; of before a restart too."""
        return tuple(self._chunks)

    @property
    def eta(self) -> float | None:
        """Seconds until the clip is expected, with who goes before it and nobody who comes later; 0 when it is done.

        What sharing saves is not in it. None while it waits or runs with steps of a kind, its own or of who goes before
        it, that was never measured on this machine.
        """
        if self.done:
            return 0.0
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def cancel(self) -> None:
        """Ends the job before its next component call. Cancelling one that is done changes nothing."""
        self._cancel.cancel()
        self._woken()

    async def result(self) -> Clip:
        """The clip. Cancelling who awaits it leaves the job alone.

        Raises:
            Cancelled: it was cancelled, or its deadline passed; `partial` has the chunks that were final by then.
            FvError: whatever else ended it. RunError: FV513, the event loop is another than the engine's.
        """
        require_loop(self._loop, f"job {self.id}")
        self._awaiting += 1
        self._woken()
        try:
            return await asyncio.shield(self._clip)
        finally:
            self._awaiting -= 1

    async def __aiter__(self) -> AsyncIterator[RequestEvent]:
        """The events that were not read yet, in order, up to Finished or Failed.

        Raises:
            RunError: FV513, another reader waits for the next event, or the event loop is another than the engine's.
        """
        require_loop(self._loop, f"job {self.id}")
        self._readers += 1
        try:
            while not (self._over and self._events.empty()):
                event = await self._next()
                if isinstance(event, MediaChunk):
                    self._read += 1
                    self._woken()
                yield event
        finally:
            self._readers -= 1
            self._woken()

    async def _next(self) -> RequestEvent:
        if self._reading:
            raise misused(
                f"job {self.id}", "is read by another reader already", "Read its events in one place."
            )
        self._reading = True
        try:
            return await self._events.get()
        finally:
            self._reading = False

    @property
    def lags(self) -> bool:
        """Whether it is to wait for its reader; asked by the engine's thread."""
        return self._readers > 0 and not self._awaiting and self._sent - self._read >= AHEAD

    def expect(self, ends: float | None, left_s: float) -> None:
        """Takes from the engine's threads when it should end, as `time.monotonic` counts, and what is left of it."""
        self._ends, self.left_s = ends, left_s

    def tell(self, event: RequestEvent) -> None:
        """Takes an event from the engine's threads."""
        self._sent += isinstance(event, MediaChunk)
        self._call(self._take, event)

    def end(self, outcome: Clip | FvError) -> None:
        """Takes the outcome from the engine's threads; an error is told as an event too, if that was not done."""
        self._call(self._settle, outcome)

    def _call(self, what: Callable[[T], None], value: T) -> None:
        try:
            self._loop.call_soon_threadsafe(what, value)
        except RuntimeError:
            if not self._loop.is_closed():  # who asked for the job is gone, which is nobody else's concern
                raise

    def _take(self, event: RequestEvent) -> None:
        if self._over:
            return
        if isinstance(event, MediaChunk):
            insort(self._chunks, event, key=_index)
        self._over = isinstance(event, (Finished, Failed))
        self._events.put_nowait(event)

    def _settle(self, outcome: Clip | FvError) -> None:
        if self.done:
            return
        if isinstance(outcome, Clip):
            self._clip.set_result(self._noted(outcome))
            return
        self._take(Failed(request_id=self.id, code=outcome.code, message=outcome.message))
        if isinstance(outcome, Cancelled):
            outcome.partial = self.chunks
        self._clip.set_exception(outcome)

    def _noted(self, clip: Clip) -> Clip:
        """Says so where chunks are gone that another process told of."""
        there = {chunk.index for chunk in self._chunks}
        gone = sorted(set(range(max(there, default=0))) - there)
        if not gone:
            return clip
        note = f"job.chunks has not the chunks {gone}: the store holds them no more; the clip is whole"
        return replace(clip, used=replace(clip.used, adjusted=(*clip.used.adjusted, note)))


def _index(chunk: MediaChunk) -> int:
    return chunk.index


def require_loop(own: asyncio.AbstractEventLoop, name: str) -> None:
    """Raises:
    RunError: FV513, the loop that runs is another.
    """
    if asyncio.get_running_loop() is not own:
        raise misused(
            name,
            "is used from another event loop than its engine was entered in",
            "Use `asyncio.run_coroutine_threadsafe` from other threads.",
        )


def misused(name: str, rule: str, remedy: str) -> RunError:
    """FV513: an engine or a job is used out of order."""
    return RunError("FV513", name=name, rule=rule, remedy=remedy)


def _retrieved(future: asyncio.Future[Clip]) -> None:
    """Nobody has to await the result: an error was told by the events already."""
    if not future.cancelled():
        future.exception()
