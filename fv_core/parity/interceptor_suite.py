"""All gates on an interceptor in order, and which of them can tell nothing where another has failed."""

from __future__ import annotations

from typing import Final

from fv_core.parity import interceptor_hooks as hooks
from fv_core.parity import interceptor_runs as runs
from fv_core.parity.interception import InterceptorTrial
from fv_core.parity.order import Entry, Ordered

_PURE = ("purity",)

GATES: Final[dict[str, Entry[InterceptorTrial]]] = {
    "record": Entry(hooks.record, ()),
    "params": Entry(hooks.params, ("record",)),
    "answers": Entry(hooks.answers, ("record",)),
    "runs": Entry(hooks.runs, ("answers",)),
    "purity": Entry(hooks.purity, ("runs",)),
    "quiet": Entry(hooks.quiet, _PURE),
    "state": Entry(runs.state, _PURE),
    "repetition": Entry(runs.repetition, _PURE),
    "branches": Entry(runs.branches, ("repetition",)),
    "interleave": Entry(runs.interleave, ("branches",)),
    "resume": Entry(runs.resume, ("state", "interleave")),
    "leak": Entry(runs.leak, _PURE),
    "off": Entry(runs.off, _PURE),
    "truth": Entry(runs.truth, _PURE),
    "refusal": Entry(runs.refusal, ("record",)),
}
"""By name, in the order they run."""


class InterceptorSuite(Ordered[InterceptorTrial]):
    """Runs the gates on one interceptor."""

    def __init__(self, trial: InterceptorTrial) -> None:
        super().__init__(trial, GATES)
