"""Whether a row should join a forward: predicted from the seconds that forwards of its kind have taken here.

Nothing but time depends on it under exact numerics; under fast ones it decides which rows share, as arrival does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol, runtime_checkable

import torch

PAYS: Final = 0.85
"""A row joins where the forward with it is predicted to take at most this part of two forwards apart."""

_TRIES = 2  # the first forward of a size also pays for what torch prepares once
_PATIENCE = 64
_KINDS = 512


@runtime_checkable
class Gain(Protocol):
    """Decides what joins; told of every forward. A kind is all that makes forwards alike but their rows."""

    def joins(self, kind: Hashable, rows: int, more: int) -> bool:
        """Whether `more` rows should join `rows` others that wait."""
        ...

    def timed(self, kind: Hashable, rows: int) -> AbstractContextManager[None]:
        """Around a forward of so many rows."""
        ...

    def failed(self, kind: Hashable, rows: int) -> None:
        """A forward of so many rows failed, and its calls, run alone, did not."""
        ...


class Always:
    """Lets all that may share do so, whatever it takes: for gates and tests, which must not depend on time."""

    def joins(self, kind: Hashable, rows: int, more: int) -> bool:
        return True

    def timed(self, kind: Hashable, rows: int) -> AbstractContextManager[None]:
        return nullcontext()

    def failed(self, kind: Hashable, rows: int) -> None:
        pass


class Measured:
    """Goes by the fastest of two forwards of each size.

    Sizes between two that were measured are interpolated. Larger ones are tried, each at most twice as large as any
    before it and only from a size that pays, so that a shape too large to gain, or to fit, ends at pairs. After 64
    refusals a kind is measured anew: what else the machine was busy with may have passed.
    """

    def __init__(self, device: torch.device, clock: Callable[[], float] | None = None) -> None:
        self._device = device
        # On the CPU the thread's own time: another process that takes the core away says nothing of a forward.
        self._clock = clock or (time.thread_time if device.type == "cpu" else time.perf_counter)
        self._kinds: dict[Hashable, dict[int, list[float]]] = {}
        self._refusals: dict[Hashable, int] = {}

    def joins(self, kind: Hashable, rows: int, more: int) -> bool:
        known = self._known(kind)
        together, largest = rows + more, max(known, default=0)
        if together > 2 * largest:
            return False
        if together > largest:
            return True
        apart = _predicted(known, rows) + _predicted(known, more)
        if _predicted(known, together) <= PAYS * apart:
            return True
        self._refuse(kind)
        return False

    @contextmanager
    def timed(self, kind: Hashable, rows: int) -> Iterator[None]:
        taken = self._kinds.get(kind)  # of no interest where nothing could ever have joined
        if taken is None or len(taken.get(rows, ())) == _TRIES:
            yield
            return
        began = self._now()
        yield
        taken.setdefault(rows, []).append(self._now() - began)

    def failed(self, kind: Hashable, rows: int) -> None:
        if kind in self._kinds:
            self._kinds[kind][rows] = [math.inf] * _TRIES

    def _now(self) -> float:
        if self._device.type == "cuda":  # a clock that has waited for all that was asked of the device
            torch.cuda.synchronize(self._device)
        return self._clock()

    def _known(self, kind: Hashable) -> dict[int, float]:
        """Seconds by rows, of the sizes that were measured often enough."""
        if kind not in self._kinds and len(self._kinds) == _KINDS:
            oldest = next(iter(self._kinds))
            self._forget(oldest)
        sizes = self._kinds.setdefault(kind, {})
        return {rows: min(taken) for rows, taken in sizes.items() if len(taken) == _TRIES}

    def _refuse(self, kind: Hashable) -> None:
        self._refusals[kind] = self._refusals.get(kind, 0) + 1
        if self._refusals[kind] == _PATIENCE:
            self._forget(kind)

    def _forget(self, kind: Hashable) -> None:
        self._kinds.pop(kind, None)
        self._refusals.pop(kind, None)


def _predicted(known: Mapping[int, float], rows: int) -> float:
    """Seconds of a forward of `rows` rows, at most as many as the largest known."""
    if rows in known:
        return known[rows]
    below = max((size for size in known if size < rows), default=0)  # no rows take no time
    above = min(size for size in known if size > rows)
    share = (rows - below) / (above - below)
    return (1 - share) * known.get(below, 0.0) + share * known[above]
