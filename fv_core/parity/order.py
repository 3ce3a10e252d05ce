"""Gates in order: each runs once on what is on trial, and tells nothing where one that it needs has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from fv_core.errors import FvError
from fv_core.parity.trial import Finding, GateResult, GateState

T = TypeVar("T")


class Entry(NamedTuple, Generic[T]):
    """A gate, and the gates that must have passed before it can tell anything."""

    gate: Callable[[T], Finding]
    needs: tuple[str, ...]


class Ordered(Generic[T]):
    """Runs the gates of a mapping, name to gate, on one trial."""

    def __init__(self, trial: T, gates: Mapping[str, Entry[T]]) -> None:
        self._trial = trial
        self._gates = gates
        self._results: dict[str, GateResult] = {}

    def result(self, name: str) -> GateResult:
        """What gate `name` found; the gates it needs run first."""
        if name not in self._results:
            self._results[name] = self._run(name)
        return self._results[name]

    def results(self) -> Iterator[GateResult]:
        """Every gate, each told when it is done."""
        return map(self.result, self._gates)

    def _run(self, name: str) -> GateResult:
        entry = self._gates[name]
        for needed in entry.needs:
            if self.result(needed).state is not GateState.PASSED:
                return self._untold(name, GateState.BLOCKED, f"gate {needed} has not passed")
        try:
            return entry.gate(self._trial).result(name)
        except FvError as error:
            return self._untold(name, GateState.FAILED, f"{error.code}: {error.message}")

    def _untold(self, name: str, state: GateState, detail: str) -> GateResult:
        figure = int(state is GateState.FAILED)
        return GateResult(gate=name, state=state, figure=figure, of=0, counted="runs", detail=detail)
