"""A job as its submitter sees it: events, a result, a way to end it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fv_core.errors import Cancelled, FvError
from fv_core.media import Clip
from fv_core.request import CancelScope, Failed, Finished, MediaChunk, RequestEvent


class AsyncJob:
    """A request that was accepted: iterate over its events, await its result, cancel it.

    Events are kept until they are read, so a slow reader holds up nothing; of a job they come to its clip at most.
    """

    def __init__(self, ident: str, cancel: CancelScope, loop: asyncio.AbstractEventLoop) -> None:
        self.id = ident
        self._cancel = cancel
        self._loop = loop
        self._events: asyncio.Queue[RequestEvent] = asyncio.Queue()
        self._chunks: list[MediaChunk] = []
        self._clip: asyncio.Future[Clip] = loop.create_future()
        self._clip.add_done_callback(_retrieved)

    @property
    def done(self) -> bool:
        return self._clip.done()

    def cancel(self) -> None:
        """Ends the job before its next component call. Cancelling one that is done changes nothing."""
        self._cancel.cancel()

    async def result(self) -> Clip:
        """The clip.

        Raises:
            Cancelled: it was cancelled, or its deadline passed; `partial` has the chunks that were final by then.
            FvError: whatever else ended it.
        """
        return await asyncio.shield(self._clip)

    async def __aiter__(self) -> AsyncIterator[RequestEvent]:
        """The events that were not read yet, in order, up to Finished or Failed. One reader at a time."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, (Finished, Failed)):
                return

    def tell(self, event: RequestEvent) -> None:
        """Takes an event from the engine's thread."""
        self._loop.call_soon_threadsafe(self._take, event)

    def end(self, outcome: Clip | FvError) -> None:
        """Takes the outcome from the engine's thread."""
        self._loop.call_soon_threadsafe(self._settle, outcome)

    def fail(self, error: FvError) -> None:
        """Ends a job that could not be taken up; only from the engine's thread."""
        self.tell(Failed(request_id=self.id, code=error.code, message=error.message))
        self.end(error)

    def _take(self, event: RequestEvent) -> None:
        if isinstance(event, MediaChunk):
            self._chunks.append(event)
        self._events.put_nowait(event)

    def _settle(self, outcome: Clip | FvError) -> None:
        if isinstance(outcome, Clip):
            self._clip.set_result(outcome)
            return
        if isinstance(outcome, Cancelled):
            outcome.partial = tuple(self._chunks)
        self._clip.set_exception(outcome)


def _retrieved(future: asyncio.Future[Clip]) -> None:
    """Nobody has to await the result: an error was told by the events already."""
    if not future.cancelled():
        future.exception()
