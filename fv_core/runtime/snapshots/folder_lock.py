"""A folder that one process at a time uses. The system gives it back when the process ends, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fv_core.errors import ResourceError

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FolderLock:
    """Taken when it is made, until it is closed; closing twice is the same as once.

    Raises:
        ResourceError: FV411, another holds it, in this process or in another one.
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._handle: int | None = None
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(handle)
        except OSError as error:
            os.close(handle)
            raise _in_use(folder) from error
        self._handle = handle

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def _in_use(folder: Path) -> ResourceError:
    return ResourceError(
        "FV411",
        name="store",
        value=str(folder),
        rule="is used by another engine",
        remedy="Close that engine or end its process, or choose another folder.",
    )
