"""Keeps running jobs in a store, so that a crash repeats at most a few seconds of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from fv_core.errors import FvError
from fv_core.request import MediaChunk
from fv_core.runtime.snapshots.job_store import JobStore
from fv_core.runtime.snapshots.snapshot import RequestSnapshot

EVERY_S: Final = 10.0
"""Seconds between two snapshots of a job, unless an engine is told otherwise."""


class Keeper:
    """Decides when a job is stored; writing goes on beside the computing.

    Args:
        every_s: a crash repeats at most the longer of one step and this many seconds of a job.
    """

    def __init__(
        self, store: JobStore, *, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.store = store
        self._every_s = every_s
        self._clock = clock
        self._taken: dict[str, float] = {}
        self._writing: dict[str, Future[None]] = {}
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fv-keeper")

    def accept(self, job: str, snapshot: RequestSnapshot) -> None:
        """Stores a job before anybody is told that it was accepted.

        Raises:
            FvError: FV403 or FV315, it cannot be stored.
        """
        self._taken[job] = self._clock()
        self.store.put(job, snapshot)

    def take_up(self, job: str) -> RequestSnapshot:
        """The newest snapshot of a job that another process left.

        Raises:
            RunError: FV504, none of it is whole.
        """
        self._taken[job] = self._clock()
        return self.store.newest(job)

    def due(self, job: str) -> bool:
        """Whether the job is to be stored after this step."""
        return self._clock() - self._taken[job] >= self._every_s

    def put(self, job: str, snapshot: RequestSnapshot) -> FvError | None:
        """Writes a snapshot in the background; what went wrong with the one before it.

        Waits for that one where the disk is slower than the promise.
        """
        failed = self._written(job)
        self._taken[job] = self._clock()
        self._writing[job] = self._writer.submit(self.store.put, job, snapshot)
        return failed

    def emit(self, job: str, chunk: MediaChunk) -> bool:
        """Records a chunk; whether it is one that was not emitted before a crash."""
        return self.store.emit(job, "video", chunk.index, chunk.frames)

    def finish(self, job: str, snapshot: RequestSnapshot) -> None:
        """Stores a job that is done, until `forget`: who asked for it may not have its clip yet.

        Raises:
            FvError: FV403 or FV315, it cannot be stored.
        """
        self._written(job)
        self.store.put(job, snapshot)

    def forget(self, job: str) -> None:
        """Removes a job that failed, or whose clip was taken."""
        self._written(job)
        self._taken.pop(job, None)
        self.store.end(job)

    def close(self) -> None:
        """Waits for what is being written; the jobs stay stored."""
        self._writer.shutdown(wait=True)

    def _written(self, job: str) -> FvError | None:
        writing = self._writing.pop(job, None)
        failed = None if writing is None else writing.exception()
        if failed is None or isinstance(failed, FvError):
            return failed
        raise failed
