"""Keeps running jobs in a store, so that a crash repeats at most a few seconds of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from fv_core.errors import FvError
from fv_core.request import MediaChunk, RequestEvent
from fv_core.runtime.faults import unforeseen
from fv_core.runtime.snapshots.job_store import JobStore
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.runtime.snapshots.terms import Terms
from fv_core.runtime.snapshots.writer import Writer

EVERY_S: Final = 10.0
"""Seconds of a job's own steps that a crash may repeat, unless an engine is told otherwise."""
UNWRITTEN: Final = 8
"""Chunks of a job that may wait to be written; with so many its next step waits too."""


class KeptJob:
    """One job in the store. What it stores and tells is done in order, beside the computing.

    `served` counts the seconds of its steps in this process, `next_s` is what the next one may take.
    """

    def __init__(
        self,
        ident: str,
        store: JobStore,
        writer: Writer,
        *,
        every_s: float,
        woken: Callable[[], None],
        taken_up: bool,
    ) -> None:
        self.taken_up = taken_up
        """Whether another process accepted it."""
        self.unkept: FvError | None = None
        """What the store lacks of it, and why."""
        self._unrecorded: list[MediaChunk] = []  # what the disk refused; the writer's alone
        self._id = ident
        self._store = store
        self._writer = writer
        self._every_s = every_s
        self._woken = woken
        self._taken = self._stored = 0.0  # `served` of the newest snapshot, and of the newest on disk
        self._handed: dict[str, int] = {
            "snapshot": 0,
            "chunk": 0,
            "event": 0,
        }  # counted by the engine's thread alone
        self._written = dict(self._handed)  # counted by the writer's

    def due(self, served: float, next_s: float) -> bool:
        """Whether it is to be stored now, or a crash in a later step could repeat more than was promised."""
        since = served - self._taken
        return since >= self._every_s / 2 or since + next_s > self._every_s

    def waits(self, served: float, next_s: float) -> bool:
        """Whether its next step has to wait for the disk: the job waits, and its neighbours do not."""
        late = self._waiting("snapshot") > 0 and served - self._stored + next_s > self._every_s
        return late or self._waiting("chunk") >= UNWRITTEN

    def put(self, take: Callable[[], RequestSnapshot], served: float) -> None:
        """Stores the snapshot that `take` gives; `unkept` tells if that fails."""
        self._taken = served
        try:
            snapshot = take()
        except BaseException as error:
            self.unkept = unforeseen(error, f"the snapshot of job {self._id}")
        else:
            self._hand_over("snapshot", partial(self._put, snapshot, served))

    def tell(self, event: RequestEvent, tell: Callable[[RequestEvent], None]) -> None:
        """Tells an event when all before it is written; a chunk that was recorded before a crash not again."""
        if isinstance(event, MediaChunk):
            self._hand_over("chunk", partial(self._record, event, tell))
        else:
            self._hand_over("event", partial(tell, event))

    def then(self, ended: Callable[[FvError | None], None]) -> None:
        """Calls `ended` with `unkept` when all before it is written; the job stays stored."""
        self._writer.do(self._id, lambda: ended(self.unkept))

    def drop(self, ended: Callable[[FvError | None], None]) -> None:
        """As `then`, and the job is stored no more."""
        self._writer.do(self._id, self._drop)
        self.then(ended)

    def _waiting(self, kind: str) -> int:
        return self._handed[kind] - self._written[kind]

    def _hand_over(self, kind: str, writing: Callable[[], None]) -> None:
        self._handed[kind] += 1
        self._writer.do(self._id, partial(self._do, kind, writing))

    def _do(self, kind: str, writing: Callable[[], None]) -> None:
        try:
            writing()
        except BaseException as error:
            self.unkept = unforeseen(error, f"storing job {self._id}")
        self._written[kind] += 1
        self._woken()

    def _put(self, snapshot: RequestSnapshot, served: float) -> None:
        while self._unrecorded:  # a snapshot that is past a chunk does not make it again
            self._emit(self._unrecorded[0])
            del self._unrecorded[0]
        self._store.put(self._id, snapshot)
        self._stored = served

    def _record(self, chunk: MediaChunk, tell: Callable[[RequestEvent], None]) -> None:
        new = True
        try:
            new = self._emit(chunk)
        except Exception:
            self._unrecorded.append(chunk)
            raise
        finally:
            if new:
                tell(chunk)

    def _emit(self, chunk: MediaChunk) -> bool:
        return self._store.emit(self._id, "video", chunk.index, chunk.frames)

    def _drop(self) -> None:
        try:
            self._store.end(self._id)
        except BaseException as error:
            self.unkept = unforeseen(error, f"forgetting job {self._id}")


class Keeper:
    """The stored jobs of an engine.

    Args:
        every_s: a crash repeats at most the longer of one step and this many seconds of a job's steps.
        woken: called, from a thread of the writer, when a job that waited may go on.
    """

    def __init__(self, store: JobStore, *, every_s: float = EVERY_S, woken: Callable[[], None]) -> None:
        self.store = store
        self._every_s = every_s
        self._woken = woken
        self._writer = Writer()

    def accept(self, job: str, terms: Terms, snapshot: RequestSnapshot) -> KeptJob:
        """Stores a job before anybody is told that it was accepted.

        Raises:
            FvError: FV403 or FV315, it cannot be stored.
        """
        self.store.accept(job, terms, snapshot)
        return self.kept(job)

    def kept(self, job: str, *, taken_up: bool = False) -> KeptJob:
        """A job that is stored."""
        return KeptJob(
            job, self.store, self._writer, every_s=self._every_s, woken=self._woken, taken_up=taken_up
        )

    def then(self, job: str, what: Callable[[], None]) -> None:
        """Calls `what` when all that the job handed over is written."""
        self._writer.do(job, what)

    def close(self) -> None:
        """Waits for what is being written; the jobs stay stored, for whoever uses the folder next."""
        self._writer.close()
        self.store.close()
