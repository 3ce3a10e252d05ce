"""Progress of a run on stderr: bars where that is a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from fv_core.cli.output import Out
from fv_core.request import RequestEvent


class Progress(Protocol):
    """Shows how a run goes."""

    def show(self, event: RequestEvent) -> None: ...

    def stopping(self) -> None:
        """The user has interrupted; the component call at work ends first."""
        ...

    def close(self) -> None:
        """Leaves the terminal as it was."""
        ...


@contextmanager
def progress(out: Out, name: str) -> Iterator[Progress]:
    """What shows the run called `name` to the user."""
    if not out.draws_progress:
        yield _Nothing()
        return
    from fv_core.cli.bars import Bars  # loads rich, which only a terminal needs

    with Bars(name, plain=not out.colors_terminal) as bars, out.writing(bars.write):
        yield bars


@contextmanager
def waiting(out: Out, text: str) -> Iterator[Callable[[str], None]]:
    """Says on a terminal what is being waited for, until the block ends; what it gives changes the text."""
    if not out.draws_progress:
        yield lambda text: None
        return
    from rich.console import Console  # loads rich, which only a terminal needs

    console = Console(stderr=True, no_color=not out.colors_terminal or None)
    with console.status(text) as shown:
        yield shown.update


class _Nothing:
    def show(self, event: RequestEvent) -> None: ...

    def stopping(self) -> None: ...

    def close(self) -> None: ...
