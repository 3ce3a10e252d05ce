"""Accepted jobs on disk: the newest snapshots of each and what it has emitted, so that a crash loses neither.

    <folder>/<job>/snapshot-00000007.safetensors    the newest ones, each whole or absent
    <folder>/<job>/emitted-video-00000003.npy       once each, whatever was run twice

A job's folder is there from its acceptance to its end. One process at a time uses a folder.
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
from fv_core.runtime.snapshots.snapshot import RequestSnapshot

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEPT: Final = 2
"""Snapshots that are kept of a job: should the newest be damaged, the one before it is gone back to."""


class JobStore:
    """The jobs of one folder, which is made if it is not there."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with refusing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def jobs(self) -> tuple[str, ...]:
        """Ids of the jobs that were accepted and have not ended, in the order of their ids."""
        return tuple(sorted(path.name for path in self.folder.iterdir() if any(path.glob("snapshot-*"))))

    def put(self, job: str, snapshot: RequestSnapshot) -> None:
        """Stores the next snapshot of a job; the first one accepts it.

        Raises:
            ResourceError: FV403, the disk is full. RequestError: FV315, the folder cannot be written.
        """
        folder = self.folder / job
        with refusing(folder):
            folder.mkdir(exist_ok=True)
            there = self._snapshots(job)
            number = 1 + (int(there[-1].stem.split("-")[1]) if there else -1)
            snapshot.save(folder / f"snapshot-{number:08}.safetensors")
            for old in there[: len(there) + 1 - KEPT]:
                old.unlink()

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
        raise damaged or _unknown(job)

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
        """Forgets a job that has ended; one that is not there is forgotten already."""
        shutil.rmtree(self.folder / job, ignore_errors=True)

    def _snapshots(self, job: str) -> list[Path]:
        return sorted((self.folder / job).glob("snapshot-*.safetensors"))

    def _part(self, job: str, artifact: str, index: int) -> Path:
        return self.folder / job / f"emitted-{artifact}-{index:08}.npy"


def _unknown(job: str) -> RunError:
    return RunError(
        "FV504",
        name="job",
        value=job,
        rule="is not stored here",
        remedy="Look into `jobs()`: a job that has ended is not kept.",
    )
