"""Standard output kept for results: what other code prints meanwhile, from Python or below it, goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import click

_STDOUT: Final = 1
_STDERR: Final = 2


@contextmanager
def kept() -> Iterator[Callable[[bytes], None]]:
    """While it is entered, stdout is stderr for everybody; yields the function that writes to what stdout was.

    The function raises OSError where that cannot be written.
    """
    stdout = sys.stdout
    stdout.flush()
    private = os.dup(_STDOUT)  # which no child process inherits
    os.dup2(_STDERR, _STDOUT)
    sys.stdout = sys.stderr
    try:
        yield partial(_write, private) if _is_the_process_own(stdout) else partial(_echo, stdout)
    finally:
        sys.stdout = stdout
        os.dup2(private, _STDOUT)
        os.close(private)


def close_stdout() -> None:
    """Leaves stdout to what runs while Python leaves: nothing that it prints may follow the result."""
    os.dup2(_STDERR, _STDOUT)
    sys.stdout = sys.stderr


def _is_the_process_own(stdout: Any) -> bool:
    """Whether `sys.stdout` writes to descriptor 1; a program that captures it has put something else there."""
    try:
        return bool(stdout.fileno() == _STDOUT)
    except (AttributeError, OSError):
        return False


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _echo(stdout: Any, data: bytes) -> None:
    click.echo(data, file=stdout, nl=False)
