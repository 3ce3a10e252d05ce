"""Where a model runs for `fv parity`, and what shows how it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fv_core.card import ModelCard
from fv_core.cli.events import event_writer
from fv_core.cli.output import Out
from fv_core.cli.progress import progress, waiting
from fv_core.plugins import find_card
from fv_core.request import RequestEvent
from fv_core.runtime.device import check_device, check_dtype
from fv_core.weights.store import locate

if TYPE_CHECKING:
    from fv_core.runtime.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where and how a model runs, and how what comes of it is told."""

    device: str
    dtype: str
    weights: Path | None
    as_json: bool
    as_events: bool

    def __post_init__(self) -> None:
        if self.as_json and self.as_events:
            raise click.UsageError("--events ends with what --json prints; give one of them.")

    @property
    def as_document(self) -> bool:
        return self.as_json or self.as_events

    def card(self, model_id: str) -> ModelCard:
        """The card, which can run as asked; loads no torch.

        Raises:
            FvError: it is unknown, the device or precision is not legal, or the weights are absent.
        """
        card = find_card(model_id)
        check_device(self.device)
        check_dtype(self.dtype, card)
        locate(card, self.weights)
        return card

    def engine(self, card: ModelCard, out: Out) -> Engine:
        """An engine of this one card, everything on the device."""
        with waiting(out, f"{card.model_id}: starting"):
            from fv_core.runtime.engine import Engine  # takes seconds

        return Engine(
            [card], device=self.device, dtype=self.dtype, weights=self.weights, offload="none", reuse=False
        )


@contextmanager
def observing(out: Out, name: str) -> Iterator[Callable[[RequestEvent], None]]:
    """What is told of every event: a bar on a terminal, a line with `--events`."""
    tell = event_writer(out)
    with progress(out, name) as bars:

        def observe(event: RequestEvent) -> None:
            bars.show(event)
            tell(event)

        yield observe
