"""Load-time rules: a card that breaks one is refused before anything of it runs. All findings at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import fields
from typing import Final

from fv_core.card.card import ModelCard, SigmaRule
from fv_core.card.limits import MAX_FPS
from fv_core.card.reads import reads
from fv_core.errors import CardError
from fv_core.program import REQUEST_NUMBERS, ComponentNode, LoopNode

DTYPES: Final = ("float32", "bfloat16", "float16")
"""Precisions, as torch names them; a card may list fewer."""


def validate(card: ModelCard) -> tuple[CardError, ...]:
    """Every rule the card breaks, in the order a reader would mend them; () for a valid card.

    What needs the loop classes themselves (FV202, FV206) is checked when they are resolved.
    """
    return tuple(
        _named(card, finding)
        for rule in (_assumed_loop, _references, _programs, _sampler_facts, _precision, _grid, _defaults)
        for finding in rule(card)
    )


def _named(card: ModelCard, error: CardError) -> CardError:
    return CardError(
        error.code,
        name=f'card "{card.model_id}": {error.name}',
        value=error.value,
        rule=error.rule,
        legal=error.legal,
        remedy=error.remedy,
    )


def _assumed_loop(card: ModelCard) -> Iterator[CardError]:
    declared = sorted({spec.semantics for spec in card.loops.values()})
    if card.recipe.assumes_loop not in declared:
        yield CardError(
            "FV201",
            name="recipe.assumes_loop",
            value=card.recipe.assumes_loop,
            rule="is not the semantics of a declared loop",
            legal=", ".join(declared),
            remedy="Bind a loop with that semantics, or correct recipe.assumes_loop.",
        )


def _references(card: ModelCard) -> Iterator[CardError]:
    for loop_id, spec in card.loops.items():
        for role, component in spec.binds.items():
            if component not in card.components:
                yield _unknown(f"loops.{loop_id}.binds[{role}]", component, card.components)
    for task, program in card.programs.items():
        for node in program.nodes:
            if isinstance(node, LoopNode) and node.loop not in card.loops:
                yield _unknown(f"programs.{task}.{node.id}.loop", node.loop, card.loops)
            if isinstance(node, ComponentNode) and node.component not in card.components:
                yield _unknown(f"programs.{task}.{node.id}.component", node.component, card.components)
            if node.when is not None and node.when.field not in REQUEST_NUMBERS:
                yield _unknown(f"programs.{task}.{node.id}.when.field", node.when.field, REQUEST_NUMBERS)
    facts = [fact.name for fact in fields(card.recipe)]
    for name, rule in card.params.items():
        if rule.default is None and name not in facts:
            yield _unknown(f"params.{name} has no default and", name, facts)


def _unknown(name: str, value: str, declared: Collection[str]) -> CardError:
    legal = ", ".join(sorted(declared))
    return CardError(
        "FV204",
        name=name,
        value=value,
        rule="is not declared by the card",
        legal=legal,
        remedy="Declare it, or correct the name.",
    )


def _programs(card: ModelCard) -> Iterator[CardError]:
    for task, program in card.programs.items():
        yield from reads(task, program)


def _sampler_facts(card: ModelCard) -> Iterator[CardError]:
    recipe, limits = card.recipe, card.limits
    least, most = limits.steps
    if not isinstance(recipe.steps, int) or not least <= recipe.steps <= most:
        yield _fact("steps", recipe.steps, f"{least} to {most}")
    if recipe.sigma_rule not in tuple(SigmaRule):
        yield _fact("sigma_rule", recipe.sigma_rule, ", ".join(SigmaRule))
    if not (math.isfinite(recipe.shift) and recipe.shift > 0):
        yield _fact("shift", recipe.shift, "a finite number greater than 0")
    low, high = limits.guidance
    if not low <= recipe.guidance <= high:
        yield _fact("guidance", recipe.guidance, f"{low:g} to {high:g}")


def _fact(name: str, value: object, legal: str) -> CardError:
    return CardError(
        "FV203",
        name=f"recipe.{name}",
        value=value,
        rule="is not a legal sampler fact",
        legal=legal,
        remedy="Correct the recipe, or the card's limits.",
    )


def _precision(card: ModelCard) -> Iterator[CardError]:
    precision = card.precision
    for dtype in precision.legal:
        if dtype not in DTYPES:
            yield _default("precision.legal", dtype, ", ".join(DTYPES))
    for name in ("cpu", "accelerator"):
        if (dtype := getattr(precision, name)) not in precision.legal:
            yield _default(f"precision.{name}", dtype, ", ".join(precision.legal))
    for component, spec in card.components.items():
        if spec.dtype not in ("card", *DTYPES):
            yield _default(f"components.{component}.dtype", spec.dtype, ", ".join(("card", *DTYPES)))


def _grid(card: ModelCard) -> Iterator[CardError]:
    """Every size and frame count that the limits allow must lie on the latent grid, or it would be cut to it."""
    size, frames, latent = card.limits.size, card.limits.frames, card.latent
    if size.multiple % latent.spatial:
        yield _default(
            "limits.size.multiple", size.multiple, f"multiples of latent.spatial, {latent.spatial}"
        )
    if frames.multiple % latent.temporal:
        legal = f"multiples of latent.temporal, {latent.temporal}"
        yield _default("limits.frames.multiple", frames.multiple, legal)


def _defaults(card: ModelCard) -> Iterator[CardError]:
    defaults, limits = card.defaults, card.limits
    if not limits.size.allows(defaults.size):
        yield _default("defaults.size", str(defaults.size), limits.size.legal())
    if not limits.frames.allows(defaults.frames):
        yield _default("defaults.frames", defaults.frames, limits.frames.legal())
    if not 0 < defaults.fps <= MAX_FPS:
        yield _default("defaults.fps", defaults.fps, f"more than 0, up to {MAX_FPS}")
    for name, rule in card.params.items():
        has_value = rule.default is not None or hasattr(card.recipe, name)  # what has none is told as FV204
        if has_value and not rule.allows(card.param_default(name)):
            yield _default(f"params.{name}", card.param_default(name), rule.legal())


def _default(name: str, value: object, legal: str) -> CardError:
    return CardError(
        "FV207",
        name=name,
        value=value,
        rule="breaks the card's own limits",
        legal=legal,
        remedy="Correct the value or the limit.",
    )
