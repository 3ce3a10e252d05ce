"""Rules of parallel plans: degrees, axes that are implemented, and axes that a loop's nature forbids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from fv_core.card.card import ModelCard
from fv_core.errors import CardError
from fv_core.parallel import UNIMPLEMENTED, Axis, ParallelPlan

CAUSAL: Final = ("ar", "causal")
"""First words of the semantics ids of loops that make a clip piece after piece."""

_BRANCHES: Final = 2


def placements(card: ModelCard) -> Iterator[CardError]:
    """FV210 to FV213 for each plan of the card that could not run or would compute something else."""
    joint = sorted(loop_id for loop_id, spec in card.loops.items() if _is_joint(spec.params))
    causal = sorted(loop_id for loop_id, spec in card.loops.items() if nature(spec.semantics) in CAUSAL)
    for index, plan in enumerate(card.parallelism):
        name = f"parallelism[{index}]"
        yield from _degrees(name, plan)
        if joint and plan.degree(Axis.CFGP) > 1:
            yield _both(f"{name}.cfgp", plan, joint)
        yield from _axes(name, plan, causal)


def nature(semantics: str) -> str:
    """The first word of a semantics id: "flow" of flow.euler.cfg/v1, "ar" of ar/v1."""
    return semantics.partition("/")[0].partition(".")[0]


def _is_joint(params: Mapping[str, object]) -> bool:
    return params.get("cfg") == "joint"


def _degrees(name: str, plan: ParallelPlan) -> Iterator[CardError]:
    for axis, degree in plan.axes.items():
        most = _BRANCHES if axis == Axis.CFGP else None
        if degree < 1 or (most is not None and degree > most):
            yield CardError(
                "FV210",
                name=f"{name}.{axis}",
                value=degree,
                rule="is not a legal degree",
                legal=f"1 to {most}" if most else "a whole number from 1 up",
                remedy="Correct the plan.",
            )


def _both(name: str, plan: ParallelPlan, joint: list[str]) -> CardError:
    return CardError(
        "FV211",
        name=name,
        value=plan.degree(Axis.CFGP),
        rule=f"splits the guidance branches that loop {', '.join(joint)} computes in one forward (cfg joint)",
        legal="1, or a loop with cfg classic",
        remedy="Remove the guidance group, or set the loop's cfg to classic.",
    )


def _axes(name: str, plan: ParallelPlan, causal: list[str]) -> Iterator[CardError]:
    for axis in Axis:
        if plan.degree(axis) <= 1 or axis not in UNIMPLEMENTED:
            continue
        if axis is Axis.PP_PATCH and causal:
            yield CardError(
                "FV212",
                name=f"{name}.{axis}",
                value=plan.degree(axis),
                rule=f"reuses a step before that the causal loop {', '.join(causal)} does not have",
                legal="1",
                remedy="Remove the axis; no later version will allow it for this loop.",
            )
            continue
        yield CardError(
            "FV213",
            name=f"{name}.{axis}",
            value=plan.degree(axis),
            rule="has no implementation in this fv-core",
            legal=", ".join(one for one in Axis if one not in UNIMPLEMENTED),
            remedy="Remove the axis from the plan.",
        )
