"""What a scheduler sees of a job, and what it is: who takes the next step, and who takes it along.

Decisions are taken at step boundaries only. Times are seconds of one clock, costs are predicted seconds of the device.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, TypeVar

from fv_core.request import Priority


class Candidate(Protocol):
    """A job that could take a step now."""

    @property
    def id(self) -> str: ...

    @property
    def priority(self) -> Priority: ...

    @property
    def arrived(self) -> float:
        """When it was accepted."""
        ...

    @property
    def cost(self) -> float:
        """Predicted seconds of its whole program, alone, when it was accepted."""
        ...

    @property
    def remaining(self) -> float:
        """Predicted seconds that are left of it, alone."""
        ...

    @property
    def served(self) -> float:
        """Seconds for which it had the device, alone or with others."""
        ...

    @property
    def key(self) -> Hashable:
        """Jobs with equal keys may share their next forward."""
        ...

    @property
    def rows(self) -> int:
        """Rows of its next forward, at least 1."""
        ...


C = TypeVar("C", bound=Candidate)


class StepTimes(Protocol):
    """Predicted seconds of a step."""

    def step_seconds(self, key: Hashable, rows: int) -> float:
        """Of a forward of `rows` rows with this key."""
        ...


class Scheduler(Protocol):
    """Chooses whose steps the device takes next."""

    def next(self, candidates: Sequence[C], now: float) -> Sequence[C]:
        """The jobs that take their next step together: at least one of `candidates`, which are at least one."""
        ...

    def ran(self, jobs: Sequence[Candidate], seconds: float) -> None:
        """Tells that `jobs` took a step together, which lasted `seconds`."""
        ...


class Join(Protocol):
    """Who takes a step along with the first of `ranked`, which are at least one; the first is among them."""

    def __call__(self, ranked: Sequence[C]) -> list[C]: ...
