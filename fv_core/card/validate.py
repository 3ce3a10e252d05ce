"""Load-time rules: a card that breaks one is refused before anything of it runs. All findings at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from fv_core.card.card import ModelCard
from fv_core.errors import CardError
from fv_core.program import REQUEST_SLOTS, ComponentNode, LoopNode, Program
from fv_core.request import TaskType


def validate(card: ModelCard) -> tuple[CardError, ...]:
    """Every rule the card breaks, in the order a reader would mend them; () for a valid card.

    What needs the loop classes themselves (FV202, FV206) is checked when they are resolved.
    """
    return tuple(
        _named(card, finding)
        for rule in (_assumed_loop, _references, _programs, _sampler_facts, _defaults)
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


def _unknown(name: str, value: str, declared: Mapping[str, object]) -> CardError:
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
        yield from _reads(task, program)


def _reads(task: TaskType, program: Program) -> Iterator[CardError]:
    written = dict.fromkeys(REQUEST_SLOTS, True)  # slot -> always written
    for node in program.nodes:
        optional = node.optional if isinstance(node, LoopNode) else ()
        for role, slot in node.reads.items():
            if slot not in written or not (written[slot] or role in optional or node.when is not None):
                yield _unwritten(f"programs.{task}.{node.id}.reads[{role}]", slot, written)
        written.update(dict.fromkeys(node.writes.values(), node.when is None))
    for artifact, slot in program.artifacts.items():
        if slot not in written:
            yield _unwritten(f"programs.{task}.artifacts[{artifact}]", slot, written)


def _unwritten(name: str, slot: str, written: dict[str, bool]) -> CardError:
    return CardError(
        "FV205",
        name=name,
        value=slot,
        rule="is not always written before it is read",
        legal=", ".join(slot for slot, always in written.items() if always),
        remedy="Order the nodes so that its writer comes first, or name the read in `optional`.",
    )


def _sampler_facts(card: ModelCard) -> Iterator[CardError]:
    recipe, limits = card.recipe, card.limits
    least, most = limits.steps
    if not least <= recipe.steps <= most:
        yield _fact("steps", recipe.steps, f"{least} to {most}")
    if not (math.isfinite(recipe.shift) and recipe.shift > 0):
        yield _fact("shift", recipe.shift, "a finite number greater than 0")
    low, high = limits.guidance
    if not low <= recipe.guidance <= high:
        yield _fact("guidance", recipe.guidance, f"{low:g} to {high:g}")


def _fact(name: str, value: float, legal: str) -> CardError:
    return CardError(
        "FV203",
        name=f"recipe.{name}",
        value=value,
        rule="is not a legal sampler fact",
        legal=legal,
        remedy="Correct the recipe, or the card's limits.",
    )


def _defaults(card: ModelCard) -> Iterator[CardError]:
    defaults, limits = card.defaults, card.limits
    if not limits.size.allows(defaults.size):
        yield _default("size", str(defaults.size), limits.size.legal())
    if not limits.frames.allows(defaults.frames):
        yield _default("frames", defaults.frames, limits.frames.legal())
    for name, rule in card.params.items():
        if not rule.allows(card.param_default(name)):
            yield _default(f"params[{name}]", card.param_default(name), rule.legal())


def _default(name: str, value: object, legal: str) -> CardError:
    return CardError(
        "FV207",
        name=f"defaults.{name}" if not name.startswith("params") else name,
        value=value,
        rule="breaks the card's own limits",
        legal=legal,
        remedy="Correct the default or the limit.",
    )
