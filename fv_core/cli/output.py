"""Everything that `fv` writes: the result alone to stdout, all else to stderr, colour only where it is wanted."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import click

from fv_core.cli.stdout import kept
from fv_core.errors import FvError, RequestError, ResourceError
from fv_core.switch import is_on

EVENTS_SCHEMA: Final = 1
"""Version of what `--events` prints; raised when a line changes its meaning."""

_UNITS: Final = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


class Unread(Exception):
    """Whoever read the result has seen enough. No OSError, which click would take as its own and leave the process."""


class Out:
    """Where a command's words go. In JSON mode stdout gets documents only, an error included.

    Args:
        words: the command line; until it has been understood, errors are told as its options ask.
    """

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.as_json = False
        """Print one JSON document; set by the option `--json`."""
        self.as_events = False
        """Print JSON documents line by line, the result or the error last; set by the option `--events`."""
        self.expect(words)
        self.quiet = False
        self.color = "auto"
        self.done: list[object] = []
        """What had been finished before an error: told beside it in JSON mode."""
        self._write: Callable[[str], None] | None = None
        self._write_result: Callable[[bytes], None] = partial(click.echo, nl=False)

    def expect(self, words: Sequence[str]) -> None:
        """Takes from words that are still to be parsed how an error in them is to be told."""
        options = words[: words.index("--")] if "--" in words else words
        self.as_json, self.as_events = "--json" in options, "--events" in options

    @contextmanager
    def keeping_stdout(self) -> Iterator[None]:
        """While the block runs, stdout gets what this prints and nothing else."""
        before = self._write_result
        with kept() as self._write_result:
            try:
                yield
            finally:
                self._write_result = before

    @property
    def draws_progress(self) -> bool:
        return not self.quiet and sys.stderr.isatty()  # never None: see `occupy_streams`

    @property
    def colors_terminal(self) -> bool:
        return self._colored() is not False

    @contextmanager
    def writing(self, write: Callable[[str], None]) -> Iterator[None]:
        """While the block runs, what goes to stderr goes through `write`, which knows what is drawn there."""
        self._write = write
        try:
            yield
        finally:
            self._write = None

    def lines(self, *lines: str) -> None:
        """Result, as text; what a line must not hold, such as a line break of foreign origin, is escaped."""
        self._result("".join(f"{_one_line(line)}\n" for line in lines).encode())

    def path(self, path: Path) -> None:
        """Result, the name of a file; its bytes, so that any name survives."""
        self._result(os.fsencode(path) + b"\n")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Result, in columns as wide as their widest cell."""
        shown = [[_one_line(cell) for cell in row] for row in (header, *rows)]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        for row in shown:
            self.lines("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def document(self, document: Mapping[str, object]) -> None:
        """Result, in JSON mode: the only document, or the last line of the events."""
        self.event("result", document) if self.as_events else self._json(document)

    def event(self, kind: str, facts: Mapping[str, object]) -> None:
        """One line of `--events`."""
        self._json({"schema": EVENTS_SCHEMA, "type": kind, **facts})

    def notice(self, text: str) -> None:
        """Something the user should know."""
        self._aside("note", "cyan", text)

    def warning(self, text: str) -> None:
        """Something the user should change."""
        self._aside("warning", "yellow", text)

    def unread(self) -> None:
        """Nobody reads the result any more: what was made all the same is told, if anything was."""
        if self.done:
            count = "1 clip" if len(self.done) == 1 else f"{len(self.done)} clips"
            self.warning(f"nobody reads standard output any more, so this stops; {count} had been written")

    def error(self, error: FvError) -> None:
        """Why the command failed. With FV_DEBUG=1 its traceback too."""
        if _debugs():
            self._stderr("".join(traceback.format_exception(error)).rstrip())
        if self.as_json or self.as_events:
            told: dict[str, object] = {"error": error.to_json()}
            told |= {"done": self.done} if self.done else {}
            with suppress(ResourceError):  # where stdout is the trouble, stderr tells it
                self.event("error", told) if self.as_events else self._json(told)
                return
        self._stderr(
            f"{click.style(f'error[{error.code}]:', fg='red', bold=True)} {_one_line(error.message)}"
        )
        self._stderr(f"{click.style('hint:', fg='cyan')} {_one_line(error.remedy)}")

    def _aside(self, word: str, color: str, text: str) -> None:
        if not self.quiet:
            self._stderr(f"{click.style(f'{word}:', fg=color)} {_one_line(text)}")

    def _json(self, document: Mapping[str, object]) -> None:
        self._result(json.dumps(document).encode() + b"\n")

    def _result(self, data: bytes) -> None:
        try:
            self._write_result(data)
        except BrokenPipeError:
            raise Unread from None
        except OSError as error:
            raise ResourceError(
                "FV403",
                name="standard output",
                rule=f"could not be written ({error.strerror})",
                remedy="Send it elsewhere, or free some space.",
            ) from error

    def _stderr(self, text: str) -> None:
        try:
            if self._write is not None:
                self._write(text)
            else:
                click.echo(text, err=True, color=self._colored())
        except OSError:
            # Whoever listened has gone; that must not cost the result. What Python flushes at exit goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())

    def _colored(self) -> bool | None:
        if self.color == "auto":
            return False if os.environ.get("NO_COLOR") else None  # None: only on a terminal
        return self.color == "always"


def occupy_streams() -> None:
    """Gives closed standard streams somewhere to go: else the next file opened gets what is written there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            assert descriptor == number, "the lowest free number is taken"
            setattr(sys, name, open(descriptor, "r" if name == "stdin" else "w"))  # noqa: SIM115  # until exit


def human_bytes(count: int) -> str:
    """`count` bytes for people, in powers of 1024."""
    for unit, scale in _UNITS:
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def _debugs() -> bool:
    try:
        return is_on("FV_DEBUG")
    except RequestError:  # which is the error that is being told
        return False


def _one_line(text: str) -> str:
    """Text of foreign origin must not move the cursor nor start lines."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return shown.encode(errors="backslashreplace").decode()
