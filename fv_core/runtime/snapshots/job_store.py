"""Accepted jobs on disk: the newest snapshots of each and what it has emitted, so that a crash loses neither.

    <folder>/.fv-jobs                               says that the folder is a store
    <folder>/.lock                                  held by the engine that uses the folder
    <folder>/<job>/terms.json                       what it was accepted on
    <folder>/<job>/snapshot-00000007.safetensors    the newest ones, each whole or absent; the first one accepts the job
    <folder>/<job>/emitted-video-00000003.npy       once each, whatever was run twice; its sha256 is behind the array

A job's folder is there from its acceptance to its end. Nothing is removed but what has such a name: a folder may hold
what others put there.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from fv_core.errors import RunError
from fv_core.media.atomic import refusing, unusable, write_files
from fv_core.runtime.snapshots.folder_lock import FolderLock
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.runtime.snapshots.terms import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEPT: Final = 2
"""Snapshots that are kept of a job: should the newest be damaged, the one before it is gone back to."""

_DIGEST_BYTES: Final = 32
MARKER: Final = ".fv-jobs"
_JOB: Final = re.compile(r"\.?r[0-9]+-[0-9a-f]{6}")
_SNAPSHOT: Final = re.compile(r"snapshot-[0-9]{8,}\.safetensors")
_PART: Final = re.compile(r"emitted-[a-z]+-[0-9]{8,}\.npy")
_HALF: Final = re.compile(r"\.fv-[0-9a-f]{16}\.tmp")
_FILE: Final = re.compile(rf"terms\.json|{_SNAPSHOT.pattern}|{_PART.pattern}|{_HALF.pattern}")


class JobStore:
    """The jobs of one folder, which is made if it is not there."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._lock: FolderLock | None = None
        with refusing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def claim(self) -> None:
        """Keeps every other engine out, and clears away what a crash left half written.

        Raises:
            ResourceError: FV411, another engine uses the folder. RequestError: FV315, it cannot be written, or holds
                what no store holds.
        """
        with refusing(self.folder):
            self._require_ours()
            self._lock = FolderLock(self.folder)
            (self.folder / MARKER).touch()
            for folder in self.folder.iterdir():
                if not _is_folder(folder) or not _JOB.fullmatch(folder.name):
                    continue
                if _accepted(folder):
                    _remove(folder, _HALF)
                else:
                    _remove_folder(folder)

    def _require_ours(self) -> None:
        if (self.folder / MARKER).exists():
            return
        for path in self.folder.iterdir():  # new, or of a store from before there were markers
            if path.name != ".lock" and not _made_here(path):
                raise unusable(
                    self.folder,
                    f"holds {path.name!r} and is no store of jobs",
                    "Choose a folder that is new or empty, or that is a store already.",
                )

    def close(self) -> None:
        """Lets other engines in."""
        if self._lock is not None:
            self._lock.close()

    def jobs(self) -> tuple[str, ...]:
        """Ids of the jobs that were accepted and have not ended."""
        return tuple(sorted(path.name for path in self.folder.iterdir() if _accepted(path)))

    def accept(self, job: str, terms: Terms, snapshot: RequestSnapshot) -> None:
        """Stores a new job, whole or not at all. Raises as `put`."""
        folder = self.folder / job
        with refusing(folder):
            folder.mkdir()
        try:
            with refusing(folder):
                write_files({folder / "terms.json": terms.to_json()}, force=True)
            self.put(job, snapshot)
        except BaseException:
            self.end(job)
            raise

    def put(self, job: str, snapshot: RequestSnapshot) -> None:
        """Stores the next snapshot of a job.

        Raises:
            ResourceError: FV403, the disk is full. RequestError: FV315, the folder cannot be written.
        """
        folder = self.folder / job
        with refusing(folder):
            there = self._snapshots(job)
            number = 1 + (int(there[-1].stem.split("-")[1]) if there else -1)
            snapshot.save(folder / f"snapshot-{number:08}.safetensors")
            for old in there[: len(there) + 1 - KEPT]:
                old.unlink()

    def terms(self, job: str) -> Terms:
        """Raises:
        RunError: FV504, they are not there or damaged.
        """
        path = self.folder / job / "terms.json"
        try:
            return Terms.from_json(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise _unusable(path, f"cannot be read: {str(error)[:200]}") from error

    def newest(self, job: str) -> RequestSnapshot:
        """The newest snapshot of a job that is whole.

        Raises:
            RunError: FV504, none of them is, or they are of another job.
        """
        damaged: RunError | None = None
        for path in reversed(self._snapshots(job)):
            try:
                found = RequestSnapshot.load(path)
            except RunError as error:
                damaged = damaged or error
                continue
            if found.header.request_id != job:
                raise _unusable(
                    path.parent, f"is a copy of {found.header.request_id}, and one id is one job's"
                )
            return found
        raise damaged or _unusable(self.folder / job, "holds no snapshot: a job that has ended is not kept")

    def emit(self, job: str, artifact: str, index: int, part: NDArray[np.uint8]) -> bool:
        """Records a part of an artifact; whether it is new, and not one that was emitted before a crash."""
        path = self._part(job, artifact, index)
        if path.exists():
            return False
        data = io.BytesIO()
        np.save(data, part, allow_pickle=False)
        with refusing(path):
            write_files({path: data.getvalue() + _digest(data.getvalue())}, force=True)
        return True

    def emitted(self, job: str, artifact: str) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """The parts of an artifact that were recorded, with their indices, in order. One that the disk refused is not
        among them, whatever came after it.

        Raises:
            RunError: FV504, one of them is damaged.
        """
        for path in sorted((self.folder / job).glob(f"emitted-{artifact}-*.npy")):
            if _PART.fullmatch(path.name):
                yield int(path.stem.split("-")[-1]), _load(path)

    def end(self, job: str) -> None:
        """Forgets a job that has ended, in one instant; one that is not there is forgotten already.

        Raises:
            RequestError: FV315, the folder cannot be written.
        """
        folder, ended = self.folder / job, self.folder / f".{job}"
        with refusing(folder):
            if folder.exists():
                folder.rename(ended)
                _remove_folder(ended)

    def _snapshots(self, job: str) -> list[Path]:
        return _snapshots(self.folder / job)

    def _part(self, job: str, artifact: str, index: int) -> Path:
        return self.folder / job / f"emitted-{artifact}-{index:08}.npy"


def _accepted(folder: Path) -> bool:
    """Whether it is a job's: not one that was forgotten, or whose submitter was never told that it was accepted."""
    return not folder.name.startswith(".") and _is_folder(folder) and bool(_snapshots(folder))


def _snapshots(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("snapshot-*") if _SNAPSHOT.fullmatch(path.name))


def _is_folder(path: Path) -> bool:
    """Whether it is one itself: what a link leads to is not the store's."""
    return path.is_dir() and not path.is_symlink()


def _made_here(path: Path) -> bool:
    """Whether it is a job's folder, also one that is begun or being forgotten, with nothing else in it."""
    return (
        _is_folder(path)
        and _JOB.fullmatch(path.name) is not None
        and all(_FILE.fullmatch(one.name) for one in path.iterdir())
    )


def _remove(folder: Path, names: re.Pattern[str]) -> None:
    for path in folder.iterdir():
        if names.fullmatch(path.name) and (path.is_symlink() or path.is_file()):
            path.unlink()


def _remove_folder(folder: Path) -> None:
    """Removes the folder of a job, unless somebody else's files are left in it."""
    _remove(folder, _FILE)
    if not any(folder.iterdir()):
        folder.rmdir()


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _load(path: Path) -> NDArray[np.uint8]:
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error}") from error
    data, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    if digest != _digest(data):
        raise _unusable(path, "is damaged: its content is not what was written")
    part: NDArray[np.uint8] = np.load(io.BytesIO(data), allow_pickle=False)
    return part


def _unusable(path: Path, rule: str) -> RunError:
    return RunError(
        "FV504",
        name="stored job",
        value=str(path),
        rule=rule,
        remedy="Run the request again, and `forget` the job.",
    )
