"""Where the bytes of sleeping weights are: in host memory, or in a safetensors file."""

from __future__ import annotations

import errno
import json
import os
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Final, Protocol

import torch
from torch import Tensor

from fv_core.errors import ResourceError
from fv_core.weights.safetensors_header import read_header

_LENGTH_BYTES: Final = 8
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Store(Protocol):
    """Storages as flat uint8 tensors in host memory, in their order."""

    def read(self) -> Sequence[Tensor]:
        """Raises:
        OSError, KeyError, WeightsError: what was stored is not there or not whole.
        """
        ...

    def drop(self) -> None:
        """Gives up what is stored."""
        ...


class HostStore:
    """Storages in host memory."""

    def __init__(self, storages: Sequence[Tensor]) -> None:
        self._storages = storages

    def read(self) -> Sequence[Tensor]:
        return self._storages

    def drop(self) -> None:
        self._storages = ()


class FileStore:
    """Storages in a safetensors file, which is removed with the store, at the latest when the process ends.

    A storage is written as plain bytes: what lies in it may be of several tensors.

    Args:
        path: the file; it appears whole or not at all.
        component: whose weights they are, for errors and whoever finds the file.
        names: of the storages.
        sizes: of the storages in bytes.
        hosted: the storages, taken one by one so that no more than one is in host memory.

    Raises:
        ResourceError: FV403 the disk is full, FV406 the file cannot be written.
    """

    def __init__(
        self, path: Path, component: str, names: Sequence[str], sizes: Sequence[int], hosted: Iterable[Tensor]
    ) -> None:
        self._path = path
        self._names = tuple(names)
        temporary = path.with_suffix(".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(_header(component, names, sizes))
                for storage in hosted:
                    file.write(storage.numpy().data)
                file.flush()
                os.fsync(file.fileno())  # some file systems tell only now that they are full
            temporary.replace(path)
        except OSError as error:
            raise _unwritten(component, path, error) from error
        finally:
            with suppress(OSError):
                temporary.unlink()
        self._remove = weakref.finalize(self, path.unlink, missing_ok=True)

    def read(self) -> Sequence[Tensor]:
        header = read_header(self._path)
        with self._path.open("rb") as file:
            start = _LENGTH_BYTES + int.from_bytes(file.read(_LENGTH_BYTES), "little")
            places = [(start + header[name].begin, start + header[name].end) for name in self._names]
            return [_read(file, begin, end) for begin, end in places]

    def drop(self) -> None:
        self._remove()


def _header(component: str, names: Sequence[str], sizes: Sequence[int]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"component": component}}
    end = 0
    for name, size in zip(names, sizes, strict=True):
        begin, end = end, end + size
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def _read(file: BufferedReader, begin: int, end: int) -> Tensor:
    storage = torch.empty(end - begin, dtype=torch.uint8)
    file.seek(begin)
    file.readinto(storage.numpy().data)  # what is missing, the checksum tells
    return storage


def _unwritten(component: str, path: Path, error: OSError) -> ResourceError:
    rule = f"could not be put to sleep ({error.strerror}) and is as it was"
    if error.errno in _FULL:
        return ResourceError(
            "FV403",
            name=component,
            value=str(path),
            rule=rule,
            remedy="Free some space, or set FV_HOME to a folder on a larger disk.",
        )
    return ResourceError(
        "FV406",
        name=component,
        value=str(path),
        rule=rule,
        remedy="Set FV_HOME to a folder that is writable.",
    )
