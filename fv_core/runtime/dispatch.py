"""Drives the jobs of one engine: who runs, whose step is next, who makes room.

A job that does not run is a snapshot: before its first step, while it has made room for another, and after a crash.
Who waits, for its reader or for the disk, takes no step, and the others go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from fv_core.errors import Cancelled, FvError
from fv_core.request import CancelScope, Failed, Finished, Priority
from fv_core.runtime.faults import unforeseen
from fv_core.runtime.job import Job, Observer, advance
from fv_core.runtime.scheduler.contract import Scheduler
from fv_core.runtime.scheduler.pricing import Quote
from fv_core.runtime.scheduler.remaining import rank
from fv_core.runtime.snapshots.keeper import KeptJob
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.runtime.together import NO_ROOM_NOW

FORETELLS_S: Final = 0.5
"""Seconds between two times that running jobs are told when they should end."""


class Starts(Protocol):
    """What a dispatcher asks of its engine."""

    def resume(
        self, taken: RequestSnapshot, *, cancel: CancelScope | None = None, observer: Observer | None = None
    ) -> Job: ...

    def snapshot(self, job: Job) -> RequestSnapshot: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """A job from its acceptance to its end; a `Candidate` of the scheduler.

    Either `job` runs or `resting` is what it was when it last ran. `quote` is the job's while it runs.

    Args:
        lags: whether it is to wait for whoever reads its events.
        expect: hears when it should end, on the dispatcher's clock (None: nobody knows), and the seconds left of it.
        kept: it in the store, where there is one.
        step_s: what its last step took, with those that took it along.
        over: whether it has ended.
    """

    id: str
    resting: RequestSnapshot | None
    quote: Quote
    turn: str
    priority: Priority
    arrived: float
    cancel: CancelScope
    tell: Observer
    lags: Callable[[], bool]
    expect: Callable[[float | None, float], None]
    kept: KeptJob | None = None
    job: Job | None = None
    announced: bool = False
    error: FvError | None = None
    served: float = 0.0
    step_s: float = 0.0
    rows: int = 1
    over: bool = False

    @property
    def waits(self) -> bool:
        """Whether it takes no step now: its reader, or the disk, has to follow first."""
        return self.lags() or (self.kept is not None and self.kept.waits(self.served, self.next_s))

    @property
    def next_s(self) -> float:
        """What its next step may take: as it is predicted, or as long as the last one. A guess is not trusted: of a
        kind that was never measured it may take any time."""
        return max(self.step_s, self.quote.step_s(self.turn) if self.turn else 0.0)

    @property
    def cost(self) -> float:
        """As it is predicted now: who was accepted before anything was measured waits no longer for it."""
        return self.quote.cost

    @property
    def remaining(self) -> float:
        return self.quote.remaining

    @property
    def key(self) -> Hashable:
        """That of the node whose turn it is; None where all are done, as of a job that only its clip is wanted of."""
        return self.quote.key(self.turn) if self.turn else None


class Dispatcher:
    """Takes one step after another. One thread drives it."""

    def __init__(
        self,
        engine: Starts,
        scheduler: Scheduler,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._clock = clock
        self._entries: list[Entry] = []
        self._foretold = -math.inf
        self.idle = False
        """Whether nobody could take a step in the last round."""

    @property
    def entries(self) -> Sequence[Entry]:
        """Those that are not over, in the order of their arrival."""
        return tuple(self._entries)

    def add(self, entry: Entry) -> None:
        """Takes a job on."""
        self._entries.append(entry)
        self._foretell()

    def deadline(self) -> float | None:
        """The next moment at which a job is to end by itself, in seconds of `time.monotonic`."""
        deadlines = [one.cancel.deadline for one in self._entries if one.cancel.deadline is not None]
        return min(deadlines, default=None)

    def round(self) -> tuple[Entry, ...]:
        """One step of those whose turn it is; the entries that are over now.

        Nothing is left to do when `entries` is empty.
        """
        self._drop_cancelled()
        chosen = self._runnable()
        self.idle = not chosen
        if chosen:
            self._step(chosen)
        ended = tuple([entry for entry in self._entries if entry.over])
        if ended:
            self._entries = [entry for entry in self._entries if entry not in ended]
        if ended or self._clock() - self._foretold >= FORETELLS_S:
            self._foretell()
        return ended

    def _foretell(self) -> None:
        """Tells each job when it should end: who ranks before it goes first, and nobody comes or shares forwards."""
        ends: float | None = self._clock()
        self._foretold = self._clock()
        for entry in sorted(self._entries, key=rank):
            left = entry.quote.eta_s
            ends = None if ends is None or left is None else ends + left
            entry.expect(ends, left or 0.0)

    def _runnable(self) -> list[Entry]:
        """Those who step next, all of them running; the first has made itself room where that was needed."""
        while candidates := self._candidates():
            first, *others = self._scheduler.next(candidates, self._clock())
            if self._start(first, making_room=True):
                return [first, *(one for one in others if self._start(one, making_room=False))]
        return []

    def _candidates(self) -> list[Entry]:
        return [one for one in self._entries if not (one.over or one.waits)]

    def _start(self, entry: Entry, *, making_room: bool) -> bool:
        """Whether the entry runs now."""
        while entry.job is None and entry.error is None:
            assert entry.resting is not None
            try:
                entry.job = self._engine.resume(entry.resting, cancel=entry.cancel, observer=entry.tell)
            except BaseException as error:
                fault = unforeseen(error, f"the start of job {entry.id}")
                if fault.code != NO_ROOM_NOW:
                    self._fail(entry, fault)
                elif not making_room:
                    return False
                elif not self._make_room(entry):
                    self._fail(entry, fault)
                continue
            self._announce(entry, entry.job)
            entry.resting, entry.quote, entry.turn = None, entry.job.quote, entry.job.run.turn
        return not entry.over

    def _announce(self, entry: Entry, job: Job) -> None:
        """Tells once that it has begun here, and of one that was done before a crash that it is."""
        if not entry.announced:
            entry.announced = True
            job.announce()
        entry.over = job.done
        if job.done:
            entry.tell(Finished(request_id=entry.id, seconds=job.seconds))

    def _make_room(self, entry: Entry) -> bool:
        """Lets the running job that ranks last rest in host memory, who waits first; False if none runs."""
        resting = max(self._running(), key=lambda one: (one.waits, rank(one)), default=None)
        if resting is None:
            return False
        assert resting.job is not None
        try:
            resting.resting = taken = self._engine.snapshot(resting.job)
        except BaseException as error:
            self._fail(resting, unforeseen(error, f"the snapshot of job {resting.id}"))
        else:
            resting.job.close()
            resting.job = None
            if resting.kept is not None:
                resting.kept.put(lambda: taken, resting.served)
        return True

    def _step(self, chosen: Sequence[Entry]) -> None:
        began = self._clock()
        advance([entry.job for entry in chosen if entry.job is not None])
        seconds = self._clock() - began
        for entry in chosen:
            assert entry.job is not None
            entry.served += seconds
            entry.step_s = seconds
            entry.error, entry.over = entry.job.error, entry.job.done
            if not entry.over:
                entry.turn = entry.job.run.turn
                if entry.kept is not None and entry.kept.due(entry.served, entry.next_s):
                    entry.kept.put(partial(self._engine.snapshot, entry.job), entry.served)
        self._scheduler.ran(chosen, seconds)

    def _running(self) -> list[Entry]:
        return [entry for entry in self._entries if entry.job is not None and not entry.over]

    def _drop_cancelled(self) -> None:
        for entry in self._entries:
            if entry.cancel.cancelled and not entry.over:
                try:
                    entry.cancel.check(entry.id)
                except Cancelled as cancelled:
                    self._fail(entry, cancelled)

    def _fail(self, entry: Entry, error: FvError) -> None:
        entry.error, entry.over, entry.resting = error, True, None
        if entry.job is not None:
            entry.job.fail(error)
        else:
            entry.tell(Failed(request_id=entry.id, code=error.code, message=error.message))
