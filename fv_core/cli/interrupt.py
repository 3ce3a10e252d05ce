"""Ctrl-C during a run: the first cancels it, which stops within one component call; the second stops at once."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from fv_core.errors import Cancelled


def interrupted() -> Cancelled:
    """What a command that Ctrl-C ended tells."""
    return Cancelled("FV510", name="fv", rule="was interrupted", remedy="Run it again to get its result.")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C does nothing while the block runs: what it would end is over already, and is being told."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def on_interrupt(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Calls `first`, then `second`, from a thread of its own, while the block runs.

    Python runs signal handlers between two instructions of the main thread, and a kernel is one instruction that
    may take minutes. The wake-up socket is written at the signal itself, once for each; a pipe would not do on
    Windows.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    handler = signal.signal(signal.SIGINT, lambda number, frame: None)
    pipe = signal.set_wakeup_fd(writer.fileno())
    watcher = Thread(target=_watch, args=(reader, first, second), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(pipe)
        signal.signal(signal.SIGINT, handler)
        writer.close()
        watcher.join()  # what it has read it has acted on
        reader.close()


def _watch(reader: socket.socket, first: Callable[[], None], second: Callable[[], None]) -> None:
    presses = 0
    while signals := reader.recv(1):
        if signals[0] == signal.SIGINT:
            presses += 1
            (first if presses == 1 else second)()
