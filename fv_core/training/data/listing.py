"""What a data set lists: files with captions, from a folder, a JSONL or a CSV file. Nothing listed is left out.

Three layouts. A folder: every file below it that is an image or a video, captioned by the .txt file of the same name
beside it. A .jsonl file: objects `{"file": ..., "caption": ...}`, one a line. A .csv file: a header `file,caption`. In
the two files a path is relative to the file that lists it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fv_core.errors import TrainError
from fv_core.media.timed import IMAGES, VIDEOS

_KEYS: Final = ("file", "caption")
_CAPTION: Final = ".txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A listed clip.

    Args:
        id: its path as the data set has it, with ` #2` for the second entry of one file, and so on.
        path: where the file lies.
        caption: without white space around it.
        problem: why there is none, or no clip; "" for an entry in order.
    """

    id: str
    path: Path
    caption: str = ""
    problem: str = ""


def listed(path: Path) -> list[Entry]:
    """All that a data set lists, in an order of its own that is the same on every machine.

    Raises:
        TrainError: FV720, there is no such data set, or it cannot be read as a whole.
    """
    try:
        if path.is_dir():
            return list(_folder(path))
        read = {".jsonl": _jsonl, ".csv": _csv}.get(path.suffix.lower())
        if read is None:
            raise _no_data(path, "is no folder, and no .jsonl or .csv file")
        return _distinct(read(path, path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, csv.Error) as error:
        told = error.strerror if isinstance(error, OSError) else str(error)
        raise _no_data(path, f"cannot be read: {told}") from error


def _folder(folder: Path) -> Iterator[Entry]:
    """Files whose name, or a folder's above them, begins with a point belong to systems and tools."""
    below = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    files = [path for path in below if not any(part.startswith(".") for part in path.parts)]
    files = [path for path in files if not (folder / path).is_dir()]
    clips = {path.with_suffix("") for path in files if _is_media(path)}
    for path in files:
        entry = Entry(id=path.as_posix(), path=folder / path)
        if _is_media(path):
            yield _captioned(entry)
        elif path.suffix.lower() != _CAPTION:
            yield replace(entry, problem=f"is no file of a kind that is read: {', '.join(IMAGES + VIDEOS)}")
        elif path.with_suffix("") not in clips:
            yield replace(entry, problem="is a caption with no clip of the same name")


def _captioned(entry: Entry) -> Entry:
    beside = entry.path.with_suffix(_CAPTION)
    try:
        caption = beside.read_text(encoding="utf-8-sig").strip()
    except FileNotFoundError:
        return replace(entry, problem=f"has no caption: there is no {beside.name} beside it")
    except (OSError, ValueError) as error:
        return replace(entry, problem=f"has no caption: {beside.name} cannot be read ({error})")
    return _checked(replace(entry, caption=caption))


def _jsonl(path: Path, text: str) -> Iterator[Entry]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            yield Entry(id=f"line {number}", path=path, problem=f"is no JSON: {error}")
            continue
        yield _row(path, number, row if isinstance(row, dict) else {})


def _csv(path: Path, text: str) -> Iterator[Entry]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    header = tuple(reader.fieldnames or ())
    if not set(_KEYS) <= set(header):
        raise ValueError(f"its header is {','.join(header)}, and has not both of {' and '.join(_KEYS)}")
    for row in reader:
        yield _row(path, reader.line_num, row)


def _row(path: Path, number: int, row: Mapping[str, object]) -> Entry:
    """A row's other keys are its author's own."""
    found = {key: row.get(key) for key in _KEYS}
    file, caption = found["file"], found["caption"]
    if not isinstance(file, str) or not file.strip():
        keys = ", ".join(map(str, row)) or "none"
        return Entry(id=f"line {number}", path=path, problem=f"names no file: its keys are {keys}")
    entry = Entry(id=file.strip(), path=path.parent / file.strip())
    if not _is_media(entry.path):
        return replace(entry, problem=f"is no file of a kind that is read: {', '.join(IMAGES + VIDEOS)}")
    return _checked(replace(entry, caption=caption.strip() if isinstance(caption, str) else ""))


def _checked(entry: Entry) -> Entry:
    return entry if entry.caption else replace(entry, problem="has an empty caption")


def _distinct(entries: Iterator[Entry]) -> list[Entry]:
    counts: dict[str, int] = {}
    named = []
    for entry in entries:
        counts[entry.id] = counts.get(entry.id, 0) + 1
        named.append(entry if counts[entry.id] == 1 else replace(entry, id=f"{entry.id} #{counts[entry.id]}"))
    return named


def _is_media(path: Path) -> bool:
    return path.suffix.lower() in IMAGES + VIDEOS


def _no_data(path: Path, rule: str) -> TrainError:
    return TrainError(
        "FV720",
        name="data.path",
        value=str(path),
        rule=rule,
        legal="a folder of clips with captions, a .jsonl or a .csv file",
        remedy="See docs/training-data.md for the three layouts.",
    )
