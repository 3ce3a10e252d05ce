"""What was learned of steps, in files under fv's home: a new process begins from what the last one knew.

<folder>/<card digest>.<environment hash>.json    a card on one kind of machine, whole or absent
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fv_core import codec
from fv_core.home import home
from fv_core.media.atomic import refusing, write_files
from fv_core.request import Environment, Numerics, Size
from fv_core.runtime.environment import environment_hash
from fv_core.runtime.scheduler.cost import Learned

FORMAT: Final = 1
KEPT: Final = 512
"""Kinds of steps in a file; the oldest are dropped."""
MOST: Final = 2**53
"""Of rows and steps: more cannot be reckoned with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What makes two steps of one card in one environment alike.

    `guided`: whether guidance is on, which doubles the rows of most. `adapters` is a hash of the request's adapters and
    their scales in order, "" for none.
    """

    node: str
    size: Size
    frames: int
    guided: bool
    numerics: Numerics
    dtype: str
    offload: str
    adapters: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A kind of step; `work` is a rough count of its multiplications, from 1 up."""

    shape: Shape
    work: float
    learned: Learned


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The file of one card in one environment."""

    format: int
    model: str
    card: str
    environment: Environment
    entries: tuple[Entry, ...]


class CostBook:
    """The pages of a folder, which is made when something is written.

    Args:
        folder: None is `costs` under fv's home.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = home() / "costs" if folder is None else folder

    def read(self, card: str, environment: Environment) -> tuple[tuple[Entry, ...], str | None]:
        """The entries of a page, none if it is not there, and why it could not be read, in words."""
        path = self._path(card, environment)
        try:
            stored = json.loads(path.read_text())
            if not isinstance(stored, dict) or stored.get("format") != FORMAT:
                raise codec.DecodeError(f"its format is not {FORMAT}")
            return _checked(codec.decode(Page, stored).entries), None
        except FileNotFoundError:
            return (), None
        except (OSError, ValueError, RecursionError) as error:
            return (), f"{path} cannot be read, so what steps take is learned anew: {str(error)[:200]}"

    def write(self, model: str, card: str, environment: Environment, entries: tuple[Entry, ...]) -> None:
        """Writes a page, whole or not at all. What other processes added meanwhile to other shapes stays.

        Raises:
            ResourceError: FV403, the disk is full. RequestError: FV315, the folder cannot be written.
        """
        ours = {entry.shape for entry in entries}
        others = [entry for entry in self.read(card, environment)[0] if entry.shape not in ours]
        kept = (*others, *entries)[-KEPT:]
        page = Page(format=FORMAT, model=model, card=card, environment=environment, entries=kept)
        path = self._path(card, environment)
        with refusing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_files({path: json.dumps(codec.encode(page), indent=1).encode()}, force=True)

    def _path(self, card: str, environment: Environment) -> Path:
        return self.folder / f"{card[:16]}.{environment_hash(environment)}.json"


def _checked(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    for entry in entries:
        means = entry.learned.means
        sound = all(
            0 < one.rows <= MOST and 0 <= one.seconds < math.inf and 0 < one.count <= MOST for one in means
        )
        if not (means and sound and 0 <= entry.learned.share <= 1 and 1 <= entry.work < math.inf):
            raise codec.DecodeError(f"what it says of {entry.shape.node} is impossible")
    return entries
