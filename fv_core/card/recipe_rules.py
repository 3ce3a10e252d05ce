"""Rules of the recipe: the loop it assumes, its sampler facts, its precision and the parity that it requires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fv_core.card.bounds import fact
from fv_core.card.card import IMPLEMENTED, LADDER, ModelCard, ParitySpec
from fv_core.errors import CardError
from fv_core.program import LoopNode

AUTOENCODING: Final = "vae."
"""How the semantics of loops begin that encode or decode what others make."""


def assumed_loop(card: ModelCard) -> Iterator[CardError]:
    """FV201: the semantics that the weights were made for is that of a loop that a program runs, and no decoder's.

    Any model's latent can be decoded alike, so naming the decoder would pair the weights with every loop.
    """
    nodes = [node for program in card.programs.values() for node in program.nodes]
    run = {node.loop for node in nodes if isinstance(node, LoopNode)}
    semantics = {card.loops[loop].semantics for loop in run}
    declared = sorted(one for one in semantics if not one.startswith(AUTOENCODING))
    if card.recipe.assumes_loop not in declared:
        yield CardError(
            "FV201",
            name="recipe.assumes_loop",
            value=card.recipe.assumes_loop,
            rule="is not the semantics of a declared loop that a program runs",
            legal=", ".join(declared),
            remedy="Bind a loop with that semantics, or correct recipe.assumes_loop.",
        )


def steps(card: ModelCard) -> Iterator[CardError]:
    """FV203: limits and loops allow the recipe's steps, and those alone where they are fixed."""
    recipe, (least, most) = card.recipe, card.limits.steps
    if recipe.steps_fixed and (least, most) != (recipe.steps, recipe.steps):
        legal = f"{recipe.steps} to {recipe.steps}: the recipe's steps are fixed"
        yield fact("limits.steps", f"{least} to {most}", legal)
    elif not least <= recipe.steps <= most:
        yield fact("recipe.steps", recipe.steps, f"{least} to {most}")
    for loop_id, spec in card.loops.items():
        assumed = spec.semantics == recipe.assumes_loop
        if assumed and recipe.steps_fixed and spec.params.get("steps", recipe.steps) != recipe.steps:
            yield fact(
                f"loops.{loop_id}.params.steps", spec.params["steps"], f"{recipe.steps}, as the recipe"
            )


def guidance(card: ModelCard) -> Iterator[CardError]:
    """FV203: the limits allow the recipe's guidance."""
    low, high = card.limits.guidance
    if not low <= card.recipe.guidance <= high:
        yield fact("recipe.guidance", card.recipe.guidance, f"{low:g} to {high:g}")


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


def claim(card: ModelCard) -> Iterator[CardError]:
    """FV209 for what is no rung, FV218 for what nothing could ever certify."""
    if (spec := card.parity) is None:
        return
    for rung in spec.rungs:
        if rung not in LADDER:
            yield _rung("parity.rungs", rung, "is not a rung", ", ".join(LADDER))
        elif rung not in IMPLEMENTED:
            rule = "is a rung that fv cannot measure yet, so nothing could ever certify the claim"
            yield _unmeasured("parity.rungs", str(rung), rule, ", ".join(IMPLEMENTED))
    yield from _measure(spec)


def _measure(spec: ParitySpec) -> Iterator[CardError]:
    for rung in sorted({rung for rung in spec.rungs if spec.rungs.count(rung) > 1}):
        yield _unmeasured("parity.rungs", str(rung), "is claimed more than once", "each rung once")
    if spec.rungs and not spec.runner:
        rule = "runs no reference, so nothing could ever certify the claimed rungs"
        yield _unmeasured("parity.runner", spec.runner, rule, '"module:attr" of a function')
    if spec.tolerance < 0:
        rule = "is less than no difference at all"
        yield _unmeasured("parity.tolerance", spec.tolerance, rule, "a number from 0 up")


def required(card: ModelCard) -> Iterator[CardError]:
    """FV209: the rung that the recipe requires, or a higher one, is claimed."""
    claimed = () if card.parity is None else card.parity.rungs
    rung = card.recipe.consistency_required
    if rung and rung not in LADDER:
        yield _rung("recipe.consistency_required", rung, "is not a rung", ", ".join(LADDER))
    elif rung and all(one < rung for one in claimed):
        told = ", ".join(claimed) or "no rung"
        legal = ", ".join(one for one in LADDER if one >= rung)
        yield _rung("recipe.consistency_required", rung, f"is more than the card claims: {told}", legal)


def _unmeasured(name: str, value: object, rule: str, legal: str) -> CardError:
    return CardError(
        "FV218", name=name, value=value, rule=rule, legal=legal, remedy="Claim what is measured, and how."
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
