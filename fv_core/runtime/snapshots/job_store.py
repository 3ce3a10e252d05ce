"""Accepted jobs on disk: the newest snapshots of each and what it has emitted, so that a crash loses neither.

    <folder>/.lock                                  held by the engine that uses the folder
    <folder>/<job>/terms.json                       what it was accepted on
    <folder>/<job>/snapshot-00000007.safetensors    the newest ones, each whole or absent; the first one accepts the job
    <folder>/<job>/emitted-video-00000003.npy       once each, whatever was run twice

A job's folder is there from its acceptance to its end.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from fv_core.errors import RunError
from fv_core.media.atomic import refusing, write_files
from fv_core.runtime.snapshots.folder_lock import FolderLock
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.runtime.snapshots.terms import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEPT: Final = 2
"""Snapshots that are kept of a job: should the newest be damaged, the one before it is gone back to."""


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
            ResourceError: FV411, another engine uses the folder. RequestError: FV315, it cannot be written.
        """
        with refusing(self.folder):
            self._lock = FolderLock(self.folder)
            for folder in self.folder.iterdir():
                if folder.is_dir() and not _accepted(folder):
                    shutil.rmtree(folder)
            for partial in self.folder.glob("*/.*"):
                partial.unlink()

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
        except (OSError, ValueError) as error:
            raise _unusable(path, f"cannot be read: {error}") from error

    def newest(self, job: str) -> RequestSnapshot:
        """The newest snapshot of a job that is whole.

        Raises:
            RunError: FV504, none of them is.
        """
        damaged: RunError | None = None
        for path in reversed(self._snapshots(job)):
            try:
                return RequestSnapshot.load(path)
            except RunError as error:
                damaged = damaged or error
        raise damaged or _unusable(self.folder / job, "holds no snapshot: a job that has ended is not kept")

    def emit(self, job: str, artifact: str, index: int, part: NDArray[np.uint8]) -> bool:
        """Records a part of an artifact; whether it is new, and not one that was emitted before a crash."""
        path = self._part(job, artifact, index)
        if path.exists():
            return False
        data = io.BytesIO()
        np.save(data, part, allow_pickle=False)
        with refusing(path):
            write_files({path: data.getvalue()}, force=True)
        return True

    def emitted(self, job: str, artifact: str) -> Iterator[NDArray[np.uint8]]:
        """The parts of an artifact that were recorded, in order."""
        index = 0
        while (path := self._part(job, artifact, index)).exists():
            yield np.load(path, allow_pickle=False)
            index += 1

    def end(self, job: str) -> None:
        """Forgets a job that has ended, in one instant; one that is not there is forgotten already.

        Raises:
            RequestError: FV315, the folder cannot be written.
        """
        folder, ended = self.folder / job, self.folder / f".{job}"
        with refusing(folder):
            if folder.exists():
                folder.rename(ended)
                shutil.rmtree(ended)

    def _snapshots(self, job: str) -> list[Path]:
        return sorted((self.folder / job).glob("snapshot-*.safetensors"))

    def _part(self, job: str, artifact: str, index: int) -> Path:
        return self.folder / job / f"emitted-{artifact}-{index:08}.npy"


def _accepted(folder: Path) -> bool:
    """Whether it is a job's: not one that was forgotten, or whose submitter was never told that it was accepted."""
    return not folder.name.startswith(".") and any(folder.glob("snapshot-*"))


def _unusable(path: Path, rule: str) -> RunError:
    return RunError(
        "FV504",
        name="stored job",
        value=str(path),
        rule=rule,
        remedy="Run the request again, and `forget` the job.",
    )
