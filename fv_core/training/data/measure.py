"""Reads a file of a data set to its end: what it holds, or why it cannot be used."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from fv_core.errors import RequestError
from fv_core.media.timed import timed_pictures
from fv_core.request import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a file holds.

    Args:
        times: of its pictures, in seconds. tick: what they are rounded to.
        sha256: of its bytes.
        notes: what of it is not shown by pixels.
    """

    size: Size
    times: tuple[Fraction, ...]
    tick: Fraction
    sha256: str
    notes: tuple[str, ...]


def measure_all(paths: Iterable[Path | None]) -> Iterator[Measured | str]:
    """What each file holds, in order, or why it cannot be used; "" for None. Some files are read at once."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1), thread_name_prefix="fv-data") as threads:
        yield from threads.map(lambda path: "" if path is None else _told(path), paths)


def file_hash(path: Path) -> str:
    """sha256 in hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _told(path: Path) -> Measured | str:
    try:
        return _measure(path)
    except RequestError as error:
        return error.rule
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _measure(path: Path) -> Measured | str:
    times: list[Fraction] = []
    size, tick, notes = Size(0, 0), Fraction(1), tuple[str, ...]()
    for picture in timed_pictures(path):
        height, width, _ = picture.pixels.shape
        if times and size != Size(width, height):
            return f"changes its size at frame {len(times)}"
        size, tick, notes = Size(width, height), picture.tick, picture.notes
        times.append(picture.time)
    return Measured(size=size, times=tuple(times), tick=tick, sha256=file_hash(path), notes=notes)
