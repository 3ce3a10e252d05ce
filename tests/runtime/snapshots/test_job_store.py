"""Accepted jobs on disk: whole or absent, one engine at a time, and what damage costs."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fv_core import Engine, FvError, Priority, Request
from fv_core.errors import RequestError, ResourceError, RunError
from fv_core.runtime.snapshots import snapshot as snapshots
from fv_core.runtime.snapshots.job_store import JobStore
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.runtime.snapshots.terms import Terms

TERMS = Terms(priority=Priority.BATCH, accepted=5.0, deadline=7.5)

JOB = "r1-0123ab"


@pytest.fixture
def taken(engine: Engine, ask: Callable[..., Request]) -> RequestSnapshot:
    snapshot = engine.accept(ask())
    return replace(snapshot, header=replace(snapshot.header, request_id=JOB))


def names(store: JobStore, job: str) -> list[str]:
    return sorted(path.name for path in (store.folder / job).iterdir())


def test_terms_and_the_newest_two_snapshots_are_kept(tmp_path: Path, taken: RequestSnapshot) -> None:
    store = JobStore(tmp_path)
    store.accept(JOB, TERMS, taken)
    assert store.terms(JOB) == TERMS
    for _ in range(3):
        store.put(JOB, taken)
    assert names(store, JOB) == [
        "snapshot-00000002.safetensors",
        "snapshot-00000003.safetensors",
        "terms.json",
    ]
    assert store.newest(JOB).header == taken.header


def test_a_damaged_snapshot_costs_the_steps_since_the_one_before(
    tmp_path: Path, taken: RequestSnapshot
) -> None:
    store = JobStore(tmp_path)
    store.accept(JOB, TERMS, taken)
    store.put(JOB, taken)
    newest = tmp_path / JOB / "snapshot-00000001.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert store.newest(JOB).header == taken.header
    (tmp_path / JOB / "snapshot-00000000.safetensors").write_bytes(b"")
    with pytest.raises(FvError, match="FV504"):
        store.newest(JOB)


def test_a_snapshot_of_another_version_is_refused_by_its_number(
    tmp_path: Path, taken: RequestSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JobStore(tmp_path)
    store.accept(JOB, TERMS, taken)
    monkeypatch.setattr(snapshots, "FORMAT", snapshots.FORMAT + 1)
    with pytest.raises(FvError, match=r"FV504 snapshot format '2'"):
        store.newest(JOB)


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"",
        b"[]",
        b'{"priority": "urgent", "accepted": 1.0}',
        b"[" * 100_000,
        TERMS.to_json().replace(b"7.5", b"1" + b"0" * 400),
    ],
)
def test_terms_that_cannot_be_read_are_told(
    text: bytes | None, tmp_path: Path, taken: RequestSnapshot
) -> None:
    store = JobStore(tmp_path)
    store.accept(JOB, TERMS, taken)
    path = tmp_path / JOB / "terms.json"
    path.unlink() if text is None else path.write_bytes(text)
    with pytest.raises(FvError, match="FV504"):
        store.terms(JOB)


def test_what_a_crash_left_half_done_is_cleared_away(tmp_path: Path, taken: RequestSnapshot) -> None:
    """Killed while accepting, while writing a snapshot, and while forgetting."""
    store = JobStore(tmp_path)
    store.accept(JOB, TERMS, taken)
    (tmp_path / JOB / ".fv-0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / "r2-0123ab").mkdir()
    (tmp_path / "r2-0123ab" / "terms.json").write_bytes(TERMS.to_json())
    store.accept("r3-0123ab", TERMS, taken)
    (tmp_path / "r3-0123ab").rename(tmp_path / ".r3-0123ab")
    assert store.jobs() == (JOB,)
    store.claim()
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".fv-jobs", ".lock", JOB]
    assert names(store, JOB) == ["snapshot-00000000.safetensors", "terms.json"]


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "file",
    [
        "thesis/chapter.tex",
        "checkpoint/.env",
        "checkpoint/snapshot-00000001.safetensors",
        "notes.txt",
        f"{JOB}/notes.txt",
        f".{JOB}/snapshot-old.safetensors",
    ],
)
def test_a_folder_that_holds_anything_else_is_refused_as_it_is(file: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("years of work")
    before = tree(tmp_path)
    with pytest.raises(RequestError, match=r"FV315.*is no store of jobs.*new or empty"):
        JobStore(tmp_path).claim()
    assert tree(tmp_path) == before


def test_what_others_put_into_a_store_stays(tmp_path: Path, taken: RequestSnapshot) -> None:
    store, other = JobStore(tmp_path / "jobs"), tmp_path / "other"
    store.claim()
    store.close()
    other.mkdir()
    (other / "terms.json").write_text("not ours")
    folder = tmp_path / "jobs"
    (folder / JOB).symlink_to(other)
    (folder / "link").symlink_to(other)
    for file in ("thesis/.env", "r2-0123ab/notes.txt", ".r3-0123ab/.env", "notes.txt"):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text("years of work")
    store.accept("r4-0123ab", TERMS, taken)
    (folder / "r4-0123ab" / ".env").write_text("theirs")
    before = tree(tmp_path)
    store.claim()
    assert store.jobs() == ("r4-0123ab",)
    assert tree(tmp_path) == before
    store.end("r4-0123ab")
    assert tree(folder / ".r4-0123ab") == [".env"]


def test_a_job_that_cannot_be_stored_leaves_nothing(
    tmp_path: Path, taken: RequestSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RequestSnapshot, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RequestSnapshot, "save", full)
    store = JobStore(tmp_path)
    with pytest.raises(ResourceError, match="FV403"):
        store.accept(JOB, TERMS, taken)
    assert list(tmp_path.iterdir()) == []


def test_an_id_is_taken_once(tmp_path: Path, taken: RequestSnapshot) -> None:
    store = JobStore(tmp_path)
    store.accept(JOB, TERMS, taken)
    with pytest.raises(RequestError, match="FV315"):
        store.accept(JOB, TERMS, taken)
    assert store.jobs() == (JOB,)


def test_one_engine_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    first = JobStore(tmp_path)
    first.claim()
    with pytest.raises(ResourceError, match="FV411"):
        JobStore(tmp_path).claim()
    assert refused_in_another_process(tmp_path)
    first.close()
    first.close()
    JobStore(tmp_path).claim()


def refused_in_another_process(folder: Path) -> bool:
    script = (
        "import sys; from pathlib import Path; from fv_core.runtime.snapshots.folder_lock import FolderLock\n"
        "FolderLock(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False
    )
    return done.returncode != 0 and "FV411" in done.stderr


def test_a_chunk_is_emitted_once_whatever_is_run_twice(tmp_path: Path) -> None:
    store, part = JobStore(tmp_path), np.zeros((1, 2, 2, 3), dtype=np.uint8)
    (tmp_path / JOB).mkdir()
    found = [store.emit(JOB, "video", index, part) for index in (0, 1, 0, 1, 2)]
    assert found == [True, True, False, False, True]
    assert [index for index, _ in store.emitted(JOB, "video")] == [0, 1, 2]


def test_chunks_after_one_that_is_missing_are_found(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    (tmp_path / JOB).mkdir()
    for index in (0, 3, 4):
        store.emit(JOB, "video", index, np.full((1, 2, 2, 3), index, dtype=np.uint8))
    assert [(index, part.max()) for index, part in store.emitted(JOB, "video")] == [(0, 0), (3, 3), (4, 4)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:40],
        lambda data: data[:-1],
        lambda data: data[:-50] + bytes([data[-50] ^ 1]) + data[-49:],
        lambda data: numpy_file(np.zeros(3)),
    ],
    ids=["empty", "truncated", "one byte short", "one bit", "another array"],
)
def test_a_damaged_chunk_is_told(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    store, part = JobStore(tmp_path), np.arange(60, dtype=np.uint8).reshape(1, 4, 5, 3)
    (tmp_path / JOB).mkdir()
    store.emit(JOB, "video", 0, part)
    assert [found.tolist() for _, found in store.emitted(JOB, "video")] == [part.tolist()]
    (path,) = (tmp_path / JOB).iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RunError, match=f"FV504.*{path.name}.*is damaged"):
        list(store.emitted(JOB, "video"))


def numpy_file(array: np.ndarray[Any, Any]) -> bytes:
    data = io.BytesIO()
    np.save(data, array)
    return data.getvalue()


def test_a_copied_job_is_refused_by_the_name_of_both(tmp_path: Path, taken: RequestSnapshot) -> None:
    store, snapshot, job = JobStore(tmp_path), taken, JOB
    store.accept(job, TERMS, snapshot)
    shutil.copytree(tmp_path / job, tmp_path / f"{job}copy")
    assert store.jobs() == (job, f"{job}copy")
    assert store.newest(job).header == snapshot.header
    with pytest.raises(RunError, match=f"FV504.*{job}copy.*is a copy of {job},"):
        store.newest(f"{job}copy")


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("name", ["accepted", "deadline"])
def test_times_that_are_none_cost_their_job_alone(
    tmp_path: Path, taken: RequestSnapshot, name: str, wrong: str
) -> None:
    store = JobStore(tmp_path)
    for job in (JOB, "r2-0123ab"):
        store.accept(job, TERMS, taken)
    value = str(getattr(TERMS, name))
    (tmp_path / JOB / "terms.json").write_bytes(TERMS.to_json().replace(value.encode(), wrong.encode()))
    with pytest.raises(RunError, match=name) as refused:
        store.terms(JOB)
    assert refused.value.code == "FV504"
    assert store.terms("r2-0123ab") == TERMS
