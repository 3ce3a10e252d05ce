"""Gate on what a card's components take: no more than is claimed for them before they are loaded."""

from __future__ import annotations

from fv_core.parity.trial import Finding, Trial

_RUNS = 2
"""The second one meets all that the first one loaded."""


def memory(trial: Trial) -> Finding:
    """A component takes what its architecture states, and requests run in exactly the memory that is predicted."""
    with trial.made() as engine:
        instance = engine.instance(trial.card.model_id)
        stated = {name: instance.component_bytes(name) for name in trial.card.components}
        for name in stated:
            instance.component(name)
        taken = {name: instance.component_bytes(name) for name in stated}
        peak = engine.plan(trial.requests[0]).peak_bytes
    wrong = [
        f"component {name} takes {taken[name]} bytes, {claimed} are claimed before it is loaded"
        for name, claimed in stated.items()
        if taken[name] > claimed
    ]
    if not wrong:
        with trial.made(memory=peak) as engine:
            for _ in range(_RUNS):
                engine.run(trial.requests[0])
    return Finding(wrong=wrong, of=len(stated), counted="components that take more than is claimed")
