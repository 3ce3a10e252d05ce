"""Writing beside the computing: what one job hands over is done in order, and jobs do not wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Final, TypeAlias

Writing: TypeAlias = Callable[[], None]
"""One thing to be done; it raises nothing."""

SIDE_BY_SIDE: Final = 4
"""Jobs that are written at once: a disk, or whoever is told, that is slow for one of them holds up that one."""


class Writer:
    """A few threads and a queue per job."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=SIDE_BY_SIDE, thread_name_prefix="fv-writer")
        self._queues: dict[str, deque[Writing]] = {}
        self._gate = Lock()

    def do(self, job: str, writing: Writing) -> None:
        """Does `writing` once all that the job handed over before is done."""
        with self._gate:
            queue = self._queues.setdefault(job, deque())
            queue.append(writing)
            if len(queue) == 1:
                self._threads.submit(self._drain, job, queue)

    def close(self) -> None:
        """Waits until all is done. Nothing may be handed over any more."""
        self._threads.shutdown(wait=True)

    def _drain(self, job: str, queue: deque[Writing]) -> None:
        while True:
            queue[0]()
            with self._gate:
                queue.popleft()
                if not queue:
                    del self._queues[job]
                    return
