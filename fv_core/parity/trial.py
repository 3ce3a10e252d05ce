"""A card on trial: an engine of its own, requests that differ, and how a gate tells what it found."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from fv_core.card import ModelCard
from fv_core.parity.again import Again, run_again
from fv_core.parity.bits import Bits, bits
from fv_core.request import EVERYTHING, OutputSpec, Request
from fv_core.runtime.engine import Engine
from fv_core.runtime.gain import Always
from fv_core.runtime.records.probes import probes

_LOOKS = 4


class GateState(StrEnum):
    """blocked: not tried, because an earlier gate has failed."""

    PASSED = "passed"
    FAILED = "failed"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What one gate found.

    Args:
        figure: how much went wrong: 0 passes. counted: what it counts, in words. of: how many were looked at.
        detail: the first thing that went wrong, or what a blocked gate waits for.
    """

    gate: str
    state: GateState
    figure: int
    of: int
    counted: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a gate counted; `wrong` holds a sentence for each fault, `figure` more than those where given.

    `note` is what is worth saying where nothing is wrong.
    """

    wrong: Sequence[str]
    of: int
    counted: str
    figure: int | None = None
    note: str = ""

    def result(self, gate: str) -> GateResult:
        figure = len(self.wrong) if self.figure is None else self.figure
        state = GateState.FAILED if figure else GateState.PASSED
        detail = self.wrong[0] if self.wrong else self.note
        return GateResult(
            gate=gate, state=state, figure=figure, of=self.of, counted=self.counted, detail=detail
        )


def stride_of(number: int, places: int) -> int:
    """Where a gate looks at request `number`, counted from 0: of the first at every place, of others at about four."""
    return max(1, places // _LOOKS) if number else 1


class Trial:
    """A card with an engine of its own, made when it is needed. Use it as a context manager, or `close` it.

    Args:
        device, dtype, weights: as `Engine` takes them.
        requests: what is run, at least two that differ; None: the card's probes. All outputs are kept.
    """

    def __init__(
        self,
        card: ModelCard,
        *,
        device: str = "auto",
        dtype: str = "auto",
        weights: Path | None = None,
        requests: Sequence[Request] | None = None,
    ) -> None:
        self.card = card
        self.device = device
        self.dtype = dtype
        self.weights = weights
        self._requests = requests

    @cached_property
    def engine(self) -> Engine:
        """Raises:
        FvError: the card is not valid, or it cannot run as asked.
        """
        return self.made()

    def made(self, *, memory: int | None = None) -> Engine:
        """Another engine like the trial's own, for the caller to close.

        Raises: as `engine`.
        """
        return Engine(
            [self.card],
            device=self.device,
            dtype=self.dtype,
            weights=self.weights,
            offload="none",
            memory=memory,
            gain=Always(),
            reuse=False,
        )

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """Raises:
        RequestError: a request is not legal for the card.
        """
        everything = OutputSpec(keep=(EVERYTHING,))
        return tuple(replace(request, output=everything) for request in self._requests or probes(self.card))

    @cached_property
    def alone(self) -> tuple[Bits, ...]:
        """What each request comes to alone.

        Raises:
            FvError: what ended the first that failed.
        """
        return tuple(self.run(request) for request in self.requests)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """How many steps each request takes alone.

        Raises:
            FvError: what ended the first that failed.
        """
        return tuple(map(self._steps, self.requests))

    def _steps(self, request: Request) -> int:
        with closing(self.engine.start(request)) as job:
            taken = 0
            while not job.done:
                job.step()
                taken += 1
        return taken

    @cached_property
    def again(self) -> Again | str:
        """All requests in a new process, once for all gates; what that process said last where it failed."""
        weights = None if self.weights is None else str(self.weights)
        engine = {"device": str(self.engine.device), "dtype": self.dtype, "weights": weights}
        return run_again(self.card, self.requests, engine)

    def run(self, request: Request) -> Bits:
        """Raises:
        FvError: what ended the request.
        """
        return bits(self.engine.run(request).tensors)

    def close(self) -> None:
        if "engine" in vars(self):
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
