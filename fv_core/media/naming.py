"""Names of files: the numbered frames of a clip, its sidecar, and names for clips whose user gave none."""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

_WORDS = 6
_CHARACTERS = 40


def output_files(path: Path, frames: int) -> list[Path]:
    """The files that a clip of `frames` frames consists of when it is saved to `path`."""
    if path.suffix.lower() != ".png" or frames == 1:
        return [path]
    return [numbered(path, index) for index in range(1, frames + 1)]


def numbered(path: Path, index: int) -> Path:
    """`out-0001.png` for `out.png` and 1."""
    return path.with_name(f"{path.stem}-{index:04d}{path.suffix}")


def sidecar_path(path: str | Path) -> Path:
    """Where the sidecar of the clip saved to `path` goes: `circle.mp4.json` for `circle.mp4`."""
    path = Path(path)
    return path.with_name(f"{path.name}.json")


def automatic_path(prompt: str, seed: int, suffix: str = ".mp4", folder: Path = Path(".")) -> Path:
    """The first of `<words>-<seed><suffix>`, `<words>-<seed>-2<suffix>`, ... that nothing in `folder` uses.

    Only a look: `Clip.save_automatic` takes the name when it writes, and goes on to the next when it came late.
    """
    return next(path for path in candidates(prompt, seed, suffix, folder) if is_free(path))


def candidates(prompt: str, seed: int, suffix: str, folder: Path) -> Iterator[Path]:
    """The automatic names in their order, without end."""
    stem = f"{_slug(prompt)}-{seed}"
    yield folder / f"{stem}{suffix}"
    for number in itertools.count(2):
        yield folder / f"{stem}-{number}{suffix}"


def is_free(path: Path, frames: int = 1) -> bool:
    """Whether neither `path`, nor any of its numbered frames or the one after, nor a sidecar of them exists."""
    files = [path, *output_files(path, frames + 1)]
    return not any(os.path.lexists(name) for file in files for name in (file, sidecar_path(file)))


def _slug(prompt: str) -> str:
    plain = unicodedata.normalize("NFKD", prompt).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)[:_WORDS]
    while len(words) > 1 and len("-".join(words)) > _CHARACTERS:
        words.pop()
    return "-".join(words)[:_CHARACTERS] or "clip"
