"""All gates in order, and which of them can tell nothing where another has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from fv_core.card import validate
from fv_core.errors import FvError
from fv_core.parity import conduct, endings, gates
from fv_core.parity.trial import Finding, GateResult, GateState, Trial

Gate: TypeAlias = Callable[[Trial], Finding]


class Entry(NamedTuple):
    """A gate, and the gates that must have passed before it can tell anything."""

    gate: Gate
    needs: tuple[str, ...] = ("finite",)


def validation(trial: Trial) -> Finding:
    """The card breaks no load-time rule."""
    wrong = [f"{error.code}: {error.message}" for error in validate(trial.card)]
    return Finding(wrong=wrong, of=1, counted="load-time findings")


_SAME = ("finite", "determinism")

GATES: Final = {
    "validation": Entry(validation, ()),
    "finite": Entry(gates.finite, ("validation",)),
    "next": Entry(conduct.kernel_free_next),
    "purity": Entry(conduct.purity),
    "emission": Entry(conduct.emission),
    "determinism": Entry(gates.determinism),
    "interleave": Entry(gates.interleave, _SAME),
    "resume": Entry(gates.resume, _SAME),
    "cancel": Entry(endings.cancel),
    "cancel_leak": Entry(endings.cancel_leak),
    "leak": Entry(endings.leak),
}
"""By name, in the order they run."""


class Suite:
    """Runs gates on one trial, each once."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._results: dict[str, GateResult] = {}

    def result(self, name: str) -> GateResult:
        """What gate `name` found; the gates it needs run first."""
        if name not in self._results:
            self._results[name] = self._run(name)
        return self._results[name]

    def results(self) -> Iterator[GateResult]:
        """Every gate, each told when it is done."""
        return map(self.result, GATES)

    def _run(self, name: str) -> GateResult:
        entry = GATES[name]
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
