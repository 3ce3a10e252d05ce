"""`--events`: what happens during a run, as one JSON line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from fv_core.cli.output import Out
from fv_core.request import Failed, Finished, Loading, MediaChunk, RequestEvent, Started, StepDone

_NAMES: Final = {
    Started: "request.started",
    Loading: "request.loading",
    StepDone: "request.step",
    Finished: "request.finished",
    Failed: "request.failed",
}


def event_writer(out: Out) -> Callable[[RequestEvent], None]:
    """An observer that prints each event; one that does nothing without `--events`."""
    return (lambda event: out.event(*event_line(event))) if out.as_events else (lambda event: None)


def event_line(event: RequestEvent) -> tuple[str, dict[str, object]]:
    """The event's type and its facts; of frames only how many and how large."""
    if isinstance(event, MediaChunk):
        count, height, width, _ = event.frames.shape
        facts = {"request_id": event.request_id, "index": event.index}
        return "media.chunk", {**facts, "frames": count, "width": width, "height": height}
    return _NAMES[type(event)], asdict(event)
