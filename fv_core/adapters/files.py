"""Where an adapter lies and what its bytes are: a safetensors file, with peft's config where it has one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from fv_core.adapters.faults import unreadable
from fv_core.errors import WeightsError
from fv_core.weights.safetensors_header import TensorHeader, read_header, read_metadata

_TENSORS: Final = "adapter_model.safetensors"
_CONFIG: Final = "adapter_config.json"
_PICKLES: Final = (b"PK\x03\x04", b"\x80")
"""How a pickle of torch begins: a zip archive, or the protocol's own mark."""

_DIGESTS = 256
_LARGEST_CONFIG = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFile:
    """The files of one adapter; `config` None where there is none."""

    path: str
    tensors: Path
    config: Path | None

    def sha256(self) -> str:
        """Of the tensors' file; with a config, of both hashes.

        Raises:
            RequestError: FV322, a file cannot be read.
        """
        try:
            digests = [_digest(path) for path in (self.tensors, self.config) if path is not None]
        except OSError as error:
            raise unreadable(self.path, f"cannot be read: {error.strerror or error}") from error
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

    def headers(self) -> dict[str, TensorHeader]:
        """The tensors by name.

        Raises:
            RequestError: FV322, a pickle, or no whole safetensors file.
        """
        try:
            return read_header(self.tensors)
        except WeightsError as error:
            if _is_pickle(self.tensors):
                raise unreadable(
                    self.path,
                    "is a pickle, which can run code when it is opened; only safetensors is read",
                    "Get it as safetensors, or convert it in a place where that does no harm.",
                ) from error
            raise unreadable(self.path, f"is no whole safetensors file: {error.rule}") from error

    def metadata(self) -> dict[str, str]:
        """What the header says beside the tensors; call after `headers`."""
        return read_metadata(self.tensors)

    def settings(self) -> dict[str, Any] | None:
        """Peft's config; None where there is none.

        Raises:
            RequestError: FV322, it is no JSON object.
        """
        if self.config is None:
            return None
        try:
            with self.config.open("rb") as file:
                return json_object(self.path, file.read(_LARGEST_CONFIG))
        except OSError as error:
            raise unreadable(self.path, f"cannot be read: {error.strerror or error}") from error


def find(path: str) -> AdapterFile:
    """The files of the adapter that `path` names: a file, or the folder that peft saved.

    Raises:
        RequestError: FV322, nothing is there.
    """
    given = Path(path)
    folder = given if given.is_dir() else given.parent
    tensors, config = given / _TENSORS if given.is_dir() else given, folder / _CONFIG
    if not tensors.is_file():
        rule = f"holds no {_TENSORS}" if given.is_dir() else "is not a file or folder that exists"
        raise unreadable(
            path,
            rule,
            "Give the path of a safetensors file, or of a folder that peft saved: --lora PATH[:SCALE].",
        )
    belongs = tensors.name == _TENSORS and config.is_file()
    return AdapterFile(path=path, tensors=tensors, config=config if belongs else None)


def json_object(path: str, text: bytes | str) -> dict[str, Any]:
    """Raises:
    RequestError: FV322, it is no JSON object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(path, f"has a config that is not JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise unreadable(path, "has a config that is not a JSON object")
    return value


def _is_pickle(path: Path) -> bool:
    """Of what is no safetensors file, whose length may begin as a pickle does."""
    try:
        with path.open("rb") as file:
            return file.read(4).startswith(_PICKLES)
    except OSError:
        return False


def _digest(path: Path) -> str:
    now = path.stat()
    return _digest_of(
        path.absolute(), (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
    )


@lru_cache(maxsize=_DIGESTS)
def _digest_of(path: Path, _state: tuple[int, ...]) -> str:
    """Read once as long as the file is the same; a load compares what it has read with it all the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
