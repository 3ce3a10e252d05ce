"""All gates on a card in order, and which of them can tell nothing where another has failed."""

from __future__ import annotations

from typing import Final

from fv_core.card import validate
from fv_core.parity import conduct, endings, gates, heeding, neighbours, stated
from fv_core.parity.order import Entry, Ordered
from fv_core.parity.trial import Finding, Trial


def validation(trial: Trial) -> Finding:
    """The card breaks no load-time rule."""
    wrong = [f"{error.code}: {error.message}" for error in validate(trial.card)]
    return Finding(wrong=wrong, of=1, counted="load-time findings")


_FINITE = ("finite",)
_APART = ("finite", "determinism", "partition")

GATES: Final[dict[str, Entry[Trial]]] = {
    "validation": Entry(validation, ()),
    "finite": Entry(gates.finite, ("validation",)),
    "memory": Entry(stated.memory, _FINITE),
    "next": Entry(conduct.kernel_free_next, _FINITE),
    "purity": Entry(conduct.purity, _FINITE),
    "emission": Entry(conduct.emission, _FINITE),
    "determinism": Entry(gates.determinism, _FINITE),
    "process": Entry(gates.process, ("determinism",)),
    "inputs": Entry(heeding.inputs, ("determinism",)),
    "partition": Entry(neighbours.partition, _FINITE),
    "interleave": Entry(neighbours.interleave, _APART),
    "batch": Entry(neighbours.batch, ("interleave",)),
    "resume": Entry(gates.resume, _APART),
    "cancel": Entry(endings.cancel, _FINITE),
    "cancel_leak": Entry(endings.cancel_leak, _FINITE),
    "leak": Entry(endings.leak, _FINITE),
}
"""By name, in the order they run."""


class Suite(Ordered[Trial]):
    """Runs the gates on one card."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial, GATES)
