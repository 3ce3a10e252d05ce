"""Files that appear whole or not at all, alone or as a set, and never over another unless told so."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fv_core.errors import RequestError, ResourceError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_files(files: Mapping[Path, bytes], *, force: bool) -> None:
    """Writes every file to a temporary sibling, then puts all in place; on any failure none is left behind.

    Without `force` a name is taken by creating it exclusively, so of two writers who race for it one fails. With
    it every replaced file is whole, old or new, though a set is not replaced in one instant.

    Raises:
        FileExistsError: a file exists and `force` is not set.
        OSError: the disk is full, the folder is missing or not writable, ...
    """
    temporaries = {path: _temporary(path.parent) for path in files}
    try:
        for path, data in files.items():
            _write(temporaries[path], data)
        if force:
            _replace(temporaries)
        else:
            _publish(temporaries)
    finally:
        _remove(temporaries.values())


def check_folder(folder: Path) -> None:
    """Makes an empty file in `folder` and removes it: permission bits alone tell root and odd file systems nothing.

    Raises:
        OSError: files cannot be made there.
    """
    probe = _temporary(folder)
    probe.open("xb").close()
    probe.unlink()


@contextmanager
def refusing(path: Path, let: type[OSError] | tuple[()] = ()) -> Iterator[None]:
    """Turns the system's refusal of `path` into fv's; errors of class `let` pass as they are.

    Raises:
        ResourceError: the disk is full (FV403). RequestError: any other error of the system (FV315).
    """
    try:
        yield
    except let:
        raise
    except OSError as error:
        raise _refusal(path, error) from error
    except ValueError as error:  # a NUL in the name, or a letter that the file system cannot spell
        raise unusable(path, "is no file name", "Choose another name.") from error


def unusable(path: Path, rule: str, remedy: str) -> RequestError:
    """The refusal of an output path."""
    return RequestError("FV315", name="output", value=str(path), rule=rule, remedy=remedy)


def _refusal(path: Path, error: OSError) -> RequestError | ResourceError:
    if error.errno in _FULL:
        return ResourceError(
            "FV403",
            name="output",
            value=str(path),
            rule=f"could not be written ({error.strerror}) and nothing of it was left",
            remedy="Free some space or write to another disk, then run it again.",
        )
    if isinstance(error, FileExistsError):
        return unusable(
            path, "exists already", "Choose another name, or replace it with --force (force=True)."
        )
    return unusable(
        path, f"cannot be written ({error.strerror})", "Choose a folder that exists and is writable."
    )


def _temporary(folder: Path) -> Path:
    return folder / f".fv-{secrets.token_hex(8)}.tmp"


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # some file systems tell only now that they are full


def _publish(temporaries: Mapping[Path, Path]) -> None:
    taken: list[Path] = []
    try:
        for path in temporaries:
            path.open("xb").close()
            taken.append(path)
        _replace(temporaries)
    except BaseException:
        _remove(taken)
        raise


def _replace(temporaries: Mapping[Path, Path]) -> None:
    for path, temporary in temporaries.items():
        os.replace(temporary, path)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
