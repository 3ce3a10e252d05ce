"""What an engine knows of its forwards: how many rows one may have, what more of them gain, how many there were, and
which operations give other bits beside neighbours than alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from fv_core.errors import RequestError
from fv_core.runtime.gain import Gain

MAX_BATCH: Final = 16
"""Rows of a forward, where an engine is not told."""

_LEGAL = range(1, 257)
_CHECKS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a forward runs: an operation of a component of a model."""

    model: str
    component: str
    op: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwards:
    """How often an engine ran an operation.

    Args:
        forwards: those whose results were used. rows: calls that they had, all together. largest: most in one.
        extra: forwards whose results were not used: checks of exact sharing, and shared ones that failed.
        dependent: whether a check found bits that depend on who shares the forward; exact calls of that kind then run
            alone.
    """

    model: str
    component: str
    op: str
    forwards: int
    rows: int
    largest: int
    extra: int
    dependent: bool


@dataclass(slots=True, kw_only=True)
class Count:
    """The running numbers of one operation; see `Forwards`."""

    forwards: int = 0
    rows: int = 0
    largest: int = 0
    extra: int = 0
    dependent: bool = False

    def add(self, rows: int) -> None:
        """One more forward, of so many rows."""
        self.forwards += 1
        self.rows += rows
        self.largest = max(self.largest, rows)


@dataclass(slots=True, kw_only=True)
class Batching:
    """Of one engine. `limit`: rows of a forward at most; a group of calls is never split and may have more."""

    gain: Gain
    limit: int = MAX_BATCH
    _counts: dict[Operation, Count] = field(default_factory=dict)
    _sound: dict[Hashable, None] = field(default_factory=dict)
    _dependent: dict[Hashable, None] = field(default_factory=dict)

    def count(self, operation: Operation) -> Count:
        return self._counts.setdefault(operation, Count())

    def is_sound(self, forward: Hashable) -> bool:
        """Whether a forward of this kind has been found to give each of its calls the bits that it has alone."""
        return forward in self._sound

    def found_sound(self, forward: Hashable) -> None:
        _remember(forward, self._sound)

    def is_dependent(self, kind: Hashable) -> bool:
        """Whether a forward of this kind was found to give a call other bits than it has alone."""
        return kind in self._dependent

    def found_dependent(self, operation: Operation, kind: Hashable) -> None:
        """Calls of this kind share no exact forward from now on; those of other shapes or adapters may."""
        self.count(operation).dependent = True
        _remember(kind, self._dependent)

    def forwards(self) -> tuple[Forwards, ...]:
        """A record of each operation that ran, in the order of their first runs."""
        return tuple(
            Forwards(
                model=operation.model,
                component=operation.component,
                op=operation.op,
                forwards=count.forwards,
                rows=count.rows,
                largest=count.largest,
                extra=count.extra,
                dependent=count.dependent,
            )
            for operation, count in self._counts.items()
        )


def _remember(one: Hashable, among: dict[Hashable, None]) -> None:
    if len(among) == _CHECKS:
        del among[next(iter(among))]
    among[one] = None


def checked_limit(max_batch: int) -> int:
    """Raises:
    RequestError: FV319, no forward can have so many rows.
    """
    if type(max_batch) is not int or max_batch not in _LEGAL:
        raise RequestError(
            "FV319",
            name="max_batch",
            value=max_batch,
            rule="is not a number of rows that a forward may have",
            legal=f"a whole number from {_LEGAL[0]} to {_LEGAL[-1]}",
            remedy=f"Leave it out for {MAX_BATCH}; 1 lets no calls share a forward.",
        )
    return max_batch
