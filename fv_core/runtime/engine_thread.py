"""The thread that drives an engine: a step, then what was asked for meanwhile, then the next step."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from fv_core.errors import FvError, RunError
from fv_core.media import Clip
from fv_core.runtime.dispatch import Dispatcher, Entry
from fv_core.runtime.engine import Engine
from fv_core.runtime.faults import unforeseen

T = TypeVar("T")


class EngineThread:
    """Closes the engine when it is closed itself, after all jobs have ended.

    Args:
        ended: told, on this thread, how each entry ended.
        broke: told, on this thread, of the defect that stopped it; it ends every job that has not ended.
    """

    def __init__(
        self,
        engine: Engine,
        dispatcher: Dispatcher,
        *,
        ended: Callable[[Entry, Clip | FvError], None],
        broke: Callable[[FvError], None],
    ) -> None:
        self.broken: FvError | None = None
        """The defect that stopped it before its time."""
        self._engine = engine
        self._dispatcher = dispatcher
        self._ended = ended
        self._broke = broke
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gate = threading.Lock()  # nothing is asked of a thread that has answered for the last time
        self._going, self._closing = False, False
        self._thread = threading.Thread(target=self._work, name="fv-engine", daemon=True)

    def start(self) -> None:
        self._going = True
        self._thread.start()

    def ask(self, what: Callable[[], T]) -> Future[T]:
        """Does `what` between two steps.

        Raises:
            RunError: FV506, it has not started or has ended.
        """
        answer: Future[T] = Future()
        with self._gate:
            self.require_going()
            self._asked.put(partial(self._answered, answer, what))
        return answer

    def require_going(self) -> None:
        """Raises:
        RunError: FV506, it has not started or has ended.
        """
        if not self._going:
            if self.broken is not None:
                raise shut(f"was stopped by a defect ({self.broken.message})") from self.broken
            raise shut("does not run: it is closed, or was not entered with `async with`")

    def wake(self) -> None:
        """Looks again who could take a step; from any thread."""
        self._asked.put(_nothing)

    def close(self) -> None:
        """Waits until every job has ended. No job may be begun any more."""
        self._closing = True
        self.wake()
        self._thread.join()

    def _work(self) -> None:
        with self._engine:
            try:
                self._drive()
            except BaseException as error:  # a defect: nobody waits for ever because of it
                self.broken = unforeseen(error, "the engine")
            with self._gate:
                self._going = False
            if self.broken is not None:
                self._broke(self.broken)
            while not self._asked.empty():
                self._asked.get()()

    def _drive(self) -> None:
        while self._dispatcher.entries or not self._closing or not self._asked.empty():
            self._answer()
            for entry in self._dispatcher.round():
                self._end(entry)

    def _answered(self, answer: Future[T], what: Callable[[], T]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            if self.broken is not None:
                raise self.broken
            answer.set_result(what())
        except BaseException as error:
            answer.set_exception(unforeseen(error, "the engine"))

    def _answer(self) -> None:
        """Does what was asked for since the last round; waits for something where nobody could take a step."""
        try:
            if not self._dispatcher.entries or self._dispatcher.idle:
                self._asked.get(timeout=self._patience())()
            while True:
                self._asked.get_nowait()()
        except queue.Empty:
            return

    def _patience(self) -> float | None:
        """Seconds to the next deadline, or as long as a thread can wait for it; None: there is none."""
        deadline = self._dispatcher.deadline()
        if deadline is None:
            return None
        return min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)

    def _end(self, entry: Entry) -> None:
        outcome = self._outcome(entry)
        if entry.job is not None:
            entry.job.close()
        self._ended(entry, outcome)

    def _outcome(self, entry: Entry) -> Clip | FvError:
        if entry.error is not None:
            return entry.error
        assert entry.job is not None
        if entry.kept is not None:
            entry.kept.put(partial(self._engine.snapshot, entry.job), entry.served)
        try:
            return self._engine.clip(entry.job)
        except BaseException as error:
            return unforeseen(error, f"the clip of job {entry.id}")


def shut(rule: str) -> RunError:
    """FV506: nothing more is asked of an engine."""
    return RunError("FV506", name="engine", rule=rule, remedy="Make a new engine.")


def _nothing() -> None:
    """Whoever waits for something looks around."""
