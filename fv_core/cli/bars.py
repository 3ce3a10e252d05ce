"""Bars on a terminal: one for the run with the time it took, one per node with seconds per step and time left."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from fv_core.request import Loading, RequestEvent, Started, StepDone


class Bars:
    """Draws on stderr while it is entered.

    Args:
        name: what the run is called.
        plain: without colour.
    """

    def __init__(self, name: str, *, plain: bool) -> None:
        self._name = name
        # stdout is the result's: a pipe or a file must never get what belongs on the terminal
        self._drawn = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            _Pace(),
            console=Console(stderr=True, no_color=plain or None),
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._run = self._drawn.add_task(f"{name}: starting", total=None)
        self._nodes: dict[str, TaskID] = {}
        self._stopping = False

    def __enter__(self) -> Self:
        self._drawn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the terminal as it was, with the bars as they are."""
        self._drawn.stop()

    def write(self, text: str) -> None:
        """A line of text above the bars."""
        self._drawn.console.print(Text.from_ansi(text), soft_wrap=True)

    def show(self, event: RequestEvent) -> None:
        if isinstance(event, Started):
            self._drawn.update(self._run, total=event.total_steps, description=self._name)
        elif isinstance(event, Loading):
            self._describe(f"{self._name}: loading {event.component}")
            self._drawn.refresh()  # the next frame may come too late for a small component
        elif isinstance(event, StepDone):
            left = "" if event.step == event.total else f", {_clock(event.eta_s)} left"
            self._describe(self._name)
            known = "" if not event.left_s else f", {_clock(event.left_s)} left"
            self._drawn.update(self._run, advance=1, left=known)
            self._drawn.update(
                self._node(event), completed=event.step, pace=f"{event.seconds:.2f} s/step{left}"
            )

    def stopping(self) -> None:
        """The user has interrupted; the component call at work ends first."""
        self._describe(f"{self._name}: stopping, Ctrl-C again stops at once")
        self._stopping = True

    def _describe(self, text: str) -> None:
        if not self._stopping:
            self._drawn.update(self._run, description=text)

    def _node(self, event: StepDone) -> TaskID:
        if event.node not in self._nodes:
            self._nodes[event.node] = self._drawn.add_task(f"  {event.label}", total=event.total)
        return self._nodes[event.node]


class _Pace(ProgressColumn):
    """The pace of a node; of the run the time so far, and what is left of it where that is known."""

    def render(self, task: Task) -> Text:
        return Text(task.fields.get("pace") or _clock(task.elapsed or 0.0) + task.fields.get("left", ""))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
