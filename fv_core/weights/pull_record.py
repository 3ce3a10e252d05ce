"""What a finished pull leaves under `FV_HOME`: the revision, and each file's size and digest as the hub stated them."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fv_core import codec
from fv_core.errors import WeightsError
from fv_core.home import home

_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """One file of a repository: `digest` is "sha256:..." of a large file, "git:..." (blob id) of a small one."""

    path: str
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRecord:
    """The last complete pull of a model."""

    repo: str
    revision: str
    files: tuple[FileFacts, ...]


def read_record(model_id: str) -> PullRecord | None:
    """The record of a model, None where it was never pulled.

    Raises:
        WeightsError: FV253, the record is damaged.
    """
    path = _path(model_id)
    try:
        return codec.decode(PullRecord, json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # the last one of brackets without end
        raise _unusable(path, model_id, f"cannot be read ({error})") from error


def write_record(model_id: str, record: PullRecord) -> None:
    """Replaces the record of a model, atomically.

    Raises:
        WeightsError: FV253, it cannot be written.
    """
    path = _path(model_id)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(codec.encode(record), indent=1))
        partial.replace(path)
    except OSError as error:
        raise _unusable(path, model_id, f"cannot be written ({error})") from error


def digest_of(path: Path, kind: str) -> str:
    """A file's digest in the form of `FileFacts.digest`; `kind` is "sha256" or "git"."""
    total = hashlib.sha256() if kind == "sha256" else hashlib.sha1(usedforsecurity=False)
    if kind == "git":
        total.update(f"blob {path.stat().st_size}\0".encode())
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return f"{kind}:{total.hexdigest()}"


def _path(model_id: str) -> Path:
    return home() / "weights" / f"{model_id.replace('/', '--')}.json"


def _unusable(path: Path, model_id: str, rule: str) -> WeightsError:
    return WeightsError(
        "FV253",
        name=f"pull record {path}",
        rule=rule,
        remedy=f"Remove what is there; `fv weights pull {model_id}` writes it anew and fetches no file twice.",
    )
