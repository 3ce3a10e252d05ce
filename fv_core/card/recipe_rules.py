"""Rules of the recipe: the loop it assumes, its sampler facts, its precision and the parity that it requires."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from fv_core.card.card import IMPLEMENTED, LADDER, ModelCard, SigmaRule
from fv_core.errors import CardError
from fv_core.program import LoopNode


def assumed_loop(card: ModelCard) -> Iterator[CardError]:
    """FV201: the semantics that the weights were made for is that of a loop that a program runs."""
    nodes = [node for program in card.programs.values() for node in program.nodes]
    run = {node.loop for node in nodes if isinstance(node, LoopNode)}
    if not run or not run <= card.loops.keys():  # which loops run is another rule's finding
        run = set(card.loops)
    declared = sorted({card.loops[loop].semantics for loop in run})
    if card.recipe.assumes_loop not in declared:
        yield CardError(
            "FV201",
            name="recipe.assumes_loop",
            value=card.recipe.assumes_loop,
            rule="is not the semantics of a declared loop that a program runs",
            legal=", ".join(declared),
            remedy="Bind a loop with that semantics, or correct recipe.assumes_loop.",
        )


def sampler_facts(card: ModelCard) -> Iterator[CardError]:
    """FV203: the facts are legal, and the card's limits and loops do not contradict them."""
    recipe = card.recipe
    yield from _steps(card)
    if recipe.sigma_rule not in tuple(SigmaRule):
        yield _fact("recipe.sigma_rule", recipe.sigma_rule, ", ".join(SigmaRule))
    if not (math.isfinite(recipe.shift) and recipe.shift > 0):
        yield _fact("recipe.shift", recipe.shift, "a finite number greater than 0")
    low, high = card.limits.guidance
    if not low <= recipe.guidance <= high:
        yield _fact("recipe.guidance", recipe.guidance, f"{low:g} to {high:g}")


def _steps(card: ModelCard) -> Iterator[CardError]:
    steps, (least, most) = card.recipe.steps, card.limits.steps
    if card.recipe.steps_fixed and (least, most) != (steps, steps):
        yield _fact("limits.steps", f"{least} to {most}", f"{steps} to {steps}: the recipe's steps are fixed")
    elif not isinstance(steps, int) or not least <= steps <= most:
        yield _fact("recipe.steps", steps, f"{least} to {most}")
    yield from _sigmas(card)
    for loop_id, spec in card.loops.items():
        assumed = spec.semantics == card.recipe.assumes_loop
        if assumed and card.recipe.steps_fixed and spec.params.get("steps", steps) != steps:
            yield _fact(f"loops.{loop_id}.params.steps", spec.params["steps"], f"{steps}, as the recipe")


def _sigmas(card: ModelCard) -> Iterator[CardError]:
    recipe = card.recipe
    falling = all(a > b for a, b in pairwise(recipe.sigmas)) and all(0 < s <= 1 for s in recipe.sigmas)
    if recipe.sigmas and not (recipe.steps_fixed and len(recipe.sigmas) == recipe.steps and falling):
        yield _fact(
            "recipe.sigmas", recipe.sigmas, f"{recipe.steps} falling numbers in (0, 1], with steps_fixed"
        )


def _fact(name: str, value: object, legal: str) -> CardError:
    return CardError(
        "FV203",
        name=name,
        value=value,
        rule="is not a legal sampler fact",
        legal=legal,
        remedy="Correct the recipe, or the card's limits and loops.",
    )


def made_in(card: ModelCard) -> Iterator[CardError]:
    """FV208: the weights can be run in the precision that they were made in."""
    if card.recipe.precision and card.recipe.precision not in card.precision.legal:
        yield CardError(
            "FV208",
            name="recipe.precision",
            value=card.recipe.precision,
            rule="is not a precision of the card",
            legal=", ".join(card.precision.legal),
            remedy="Add it to precision.legal, or correct the recipe.",
        )


def parity(card: ModelCard) -> Iterator[CardError]:
    """FV209: the rung that the recipe requires, or a higher one, is claimed; every rung is one of the ladder."""
    claimed = () if card.parity is None else card.parity.rungs
    for rung in claimed:
        if rung not in LADDER:
            yield _rung("parity.rungs", rung, "is not a rung", ", ".join(LADDER))
    required = card.recipe.consistency_required
    if not required:
        return
    if required not in LADDER:
        yield _rung("recipe.consistency_required", required, "is not a rung", ", ".join(LADDER))
    elif all(rung < required for rung in claimed if rung in LADDER):
        told = ", ".join(claimed) or "no rung"
        legal = ", ".join(rung for rung in LADDER if rung >= required)
        yield _rung("recipe.consistency_required", required, f"is more than the card claims: {told}", legal)


def measurable(card: ModelCard) -> Iterator[CardError]:
    """FV218: every rung of the ladder that the card claims is one that fv can measure."""
    for rung in () if card.parity is None else card.parity.rungs:
        if rung in LADDER and rung not in IMPLEMENTED:
            yield CardError(
                "FV218",
                name="parity.rungs",
                value=str(rung),
                rule="is a rung that fv cannot measure yet, so nothing could ever certify the claim",
                legal=", ".join(IMPLEMENTED),
                remedy="Claim what is measured.",
            )


def _rung(name: str, value: object, rule: str, legal: str) -> CardError:
    return CardError(
        "FV209",
        name=name,
        value=value,
        rule=rule,
        legal=legal,
        remedy="Correct it, or claim the rung in ParitySpec.rungs and let a gate measure it.",
    )
