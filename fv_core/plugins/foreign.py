"""Runs code of a plugin: what it raises is one sentence, what it changes of the process is put back and told."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any


def told(error: BaseException) -> str:
    """Type and text of what foreign code raised, even where its text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as second:  # of a __str__ that raises in its turn
        return f"{type(error).__name__} (and its text raised {type(second).__name__})"


def is_interrupt(error: BaseException) -> bool:
    """Whether the user pressed a key; no other exception of a plugin leaves its quarantine."""
    return type(error) is KeyboardInterrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """What of the process an import must leave as it is."""

    folder: str | None
    variables: dict[str, str]
    dtype: Any
    handlers: dict[int, Any]

    @classmethod
    def now(cls) -> _Process:
        folder = None
        with suppress(OSError):  # the folder that the process is in may be gone
            folder = os.getcwd()
        numbers = signal.valid_signals() if threading.current_thread() is threading.main_thread() else ()
        return cls(
            folder=folder,
            variables=dict(os.environ),
            dtype=_default_dtype(),
            handlers={int(number): signal.getsignal(number) for number in numbers},
        )

    def restore(self) -> Iterator[str]:
        """Puts back what is no longer so; a clause for each change."""
        then, now = self, _Process.now()
        if then.folder is not None and then.folder != now.folder:
            os.chdir(then.folder)
            yield f"changed the working folder to {now.folder} (put back)"
        if then.dtype != now.dtype:
            sys.modules["torch"].set_default_dtype(then.dtype or sys.modules["torch"].float32)
            yield f"changed the default dtype of torch to {now.dtype} (put back)"
        for number, handler in then.handlers.items():
            if now.handlers.get(number, handler) is not handler and handler is not None:
                signal.signal(number, handler)
                yield f"took the signal {signal.Signals(number).name} (put back)"
        names = then.variables.keys() | now.variables.keys()
        changed = sorted(name for name in names if then.variables.get(name) != now.variables.get(name))
        if changed:
            yield f"changed {', '.join(changed)} in the environment"


@contextmanager
def undisturbed() -> Iterator[list[str]]:
    """The changes that the block makes to the process, a clause each, listed and put back when it is left.

    The working folder, torch's default dtype and signal handlers are put back; variables of the environment are told
    alone, for libraries set their own when they are first imported.
    """
    changes: list[str] = []
    before = _Process.now()
    try:
        yield changes
    finally:
        changes += before.restore()


def _default_dtype() -> Any:
    """torch's default dtype where it is not the one that torch begins with; None as well where torch is not loaded."""
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "get_default_dtype"):  # not loaded, or no further than its first lines
        return None
    found = torch.get_default_dtype()
    return None if found == torch.float32 else found
