"""Rules of references: what a part of the card names is there in another."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields

from fv_core.card.bounds import breaks
from fv_core.card.card import ModelCard
from fv_core.errors import CardError
from fv_core.program import REQUEST_NUMBERS, Compare, ComponentNode, LoopNode, Program, When


def references(card: ModelCard) -> Iterator[CardError]:
    """FV204 for each name of something that the card has not; FV207 for a comparison that has one outcome."""
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
            if node.when is not None and node.when.field not in (legal := _comparable(card, program)):
                yield _unknown(f"programs.{task}.{node.id}.when.field", node.when.field, legal)
            elif node.when is not None and not _comparable_with(card, node.when):
                yield breaks(
                    f"programs.{task}.{node.id}.when.value", node.when.value, _values_of(card, node.when)
                )
        for number in program.fixed:
            if number not in REQUEST_NUMBERS:
                yield _unknown(f"programs.{task}.fixed", number, REQUEST_NUMBERS)
        for name in program.defaults:
            if name not in card.params:
                yield _unknown(f"programs.{task}.defaults", name, card.params)
    facts = [fact.name for fact in fields(card.recipe)]
    for name, rule in card.params.items():
        if rule.default is None and name not in facts:
            yield _unknown(f"params.{name} has no default and", name, facts)


def _comparable(card: ModelCard, program: Program) -> tuple[str, ...]:
    optional = (f"inputs.{one.modality}" for one in program.inputs if one.optional)
    return (*REQUEST_NUMBERS, *(f"params.{name}" for name in card.params), *optional)


def _comparable_with(card: ModelCard, when: When) -> bool:
    """Whether the comparison can come out either way."""
    number = isinstance(when.value, (int, float)) and not isinstance(when.value, bool)
    if when.field in REQUEST_NUMBERS or when.compare is Compare.GREATER:
        return number and not when.field.startswith("inputs.")
    rule = card.params.get(when.field.removeprefix("params."))
    return isinstance(when.value, bool) if rule is None else rule.allows(when.value)


def _values_of(card: ModelCard, when: When) -> str:
    rule = card.params.get(when.field.removeprefix("params."))
    if when.field in REQUEST_NUMBERS or when.compare is Compare.GREATER:
        return "a number"
    return "true, false" if rule is None else rule.legal()


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
