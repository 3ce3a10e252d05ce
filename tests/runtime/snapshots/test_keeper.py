"""What a crash repeats: at most the longer of one step and the promised seconds, however slow the disk is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fv_core.errors import FvError, ResourceError
from fv_core.request import MediaChunk, RequestEvent, StepDone
from fv_core.runtime.snapshots.keeper import UNWRITTEN, KeptJob

STEP = StepDone(request_id="r1", node="n", label="", step=1, total=2, seconds=1.0, eta_s=1.0)


def chunk(index: int) -> MediaChunk:
    return MediaChunk(request_id="r1", index=index, frames=cast(Any, None))


class Disk:
    """A store and the queue before it: what was handed over is written when the test says so."""

    def __init__(self) -> None:
        self.queue: deque[Callable[[], None]] = deque()
        self.snapshot: object = 0.0
        self.chunks: set[int] = set()
        self.full = False
        self.refused = set[int]()
        self.ended = False

    def do(self, job: str, writing: Callable[[], None]) -> None:
        self.queue.append(writing)

    def write(self) -> None:
        self.queue.popleft()()

    def put(self, job: str, snapshot: object) -> None:
        if self.full:
            raise ResourceError("FV403", name="output", rule="is full", remedy="Free some.")
        self.snapshot = snapshot

    def emit(self, job: str, artifact: str, index: int, part: object) -> bool:
        if self.full or index in self.refused:
            raise ResourceError("FV403", name="output", rule="is full", remedy="Free some.")
        new = index not in self.chunks
        self.chunks.add(index)
        return new

    def end(self, job: str) -> None:
        self.ended = True


@pytest.fixture
def disk() -> Disk:
    return Disk()


def kept(disk: Any, every_s: float = 10.0) -> KeptJob:
    return KeptJob("r1", disk, disk, every_s=every_s, woken=lambda: None, taken_up=False)


@given(
    every_s=st.floats(0, 20),
    moves=st.lists(st.one_of(st.floats(0.01, 30), st.just(None)), max_size=60),
)
def test_no_crash_repeats_more_than_was_promised(every_s: float, moves: list[float | None]) -> None:
    """A number is a step of so many seconds, if the job may take one; None: the disk writes what is first."""
    disk = Disk()
    job, served, longest = kept(disk, every_s), 0.0, 0.0
    step_s = 0.0
    for move in moves:
        if move is None:
            if disk.queue:
                disk.write()
        elif not job.waits(served, move if step_s == 0.0 else step_s):
            step_s = (
                step_s or move
            )  # steps of one job are alike: what the last one took is what the next one takes
            served += step_s
            longest = max(longest, step_s)
            if job.due(served, step_s):
                job.put(lambda at=served: cast(Any, at), served)  # type: ignore[misc]
        repeated = served - cast(float, disk.snapshot)
        assert repeated <= max(longest, every_s) + 1e-9
    while disk.queue:
        disk.write()
    assert not job.waits(served, step_s)  # a disk that has caught up holds up nobody


def test_a_job_waits_for_a_disk_that_is_slower_than_its_chunks(disk: Disk) -> None:
    job, told = kept(disk), list[RequestEvent]()
    for index in range(UNWRITTEN):
        assert not job.waits(0.0, 1.0)
        job.tell(chunk(index), told.append)
    assert job.waits(0.0, 1.0)
    assert told == []
    disk.write()
    assert len(told) == 1
    assert not job.waits(0.0, 1.0)


def test_events_are_told_in_order_and_known_chunks_not_again(disk: Disk) -> None:
    job, told = kept(disk), list[RequestEvent]()
    disk.chunks.add(0)
    for event in (STEP, first := chunk(0), second := chunk(1), STEP):
        job.tell(event, told.append)
    while disk.queue:
        disk.write()
    assert told == [STEP, second, STEP]
    assert first not in told


def test_a_full_disk_holds_up_nobody_and_is_told(disk: Disk) -> None:
    job, told, ends = kept(disk, every_s=0.0), list[RequestEvent](), list[FvError | None]()
    disk.full = True
    job.put(lambda: cast(Any, 1.0), 1.0)
    job.tell(chunk(0), told.append)
    job.then(ends.append)
    while disk.queue:
        disk.write()
    assert not job.waits(1.0, 1.0)
    assert len(told) == 1  # live all the same
    assert [error.code for error in ends if error is not None] == ["FV403"]


def test_no_snapshot_is_past_a_chunk_that_is_not_recorded(disk: Disk) -> None:
    """Or nobody would make it again after a crash. Once there is room it is recorded, and told once all the same."""
    job, told = kept(disk, every_s=0.0), list[RequestEvent]()

    def write() -> None:
        while disk.queue:
            disk.write()

    disk.full = True
    job.tell(first := chunk(0), told.append)
    write()
    disk.full, disk.refused = False, {0}
    job.tell(second := chunk(1), told.append)
    job.put(lambda: cast(Any, 1.0), 1.0)
    write()
    assert (disk.snapshot, disk.chunks) == (0.0, {1})
    disk.refused = set()
    job.put(lambda: cast(Any, 2.0), 2.0)
    write()
    assert (disk.snapshot, disk.chunks) == (2.0, {0, 1})
    assert told == [first, second]


def test_a_snapshot_that_cannot_be_taken_is_told(disk: Disk) -> None:
    def fails() -> Any:
        raise MemoryError

    job, ends = kept(disk), list[FvError | None]()
    job.put(fails, 1.0)
    assert job.unkept is not None and job.unkept.code == "FV402"
    job.drop(ends.append)
    while disk.queue:
        disk.write()
    assert disk.ended and ends == [job.unkept]
