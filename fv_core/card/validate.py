"""Load-time rules: a card that breaks one is refused before anything of it runs. All findings at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from typing import Final

from fv_core.card.card import LatentSpec, ModelCard
from fv_core.card.limits import MAX_FPS, MIN_FPS, FrameRule, SizeRule
from fv_core.card.placement import placements
from fv_core.card.reads import reads
from fv_core.card.recipe_rules import assumed_loop, made_in, measurable, parity, sampler_facts
from fv_core.card.value_types import value_types
from fv_core.errors import CardError
from fv_core.program import REQUEST_NUMBERS, Compare, ComponentNode, LoopNode, Program, When

DTYPES: Final = ("float32", "bfloat16", "float16")
"""Precisions, as torch names them; a card may list fewer."""

_WORDS: Final = "[a-z0-9]+(?:[._-][a-z0-9]+)*"
_MODEL_ID: Final = re.compile(f"{_WORDS}/{_WORDS}")


def validate(card: ModelCard) -> tuple[CardError, ...]:
    """Every rule the card breaks, in the order a reader would mend them; () for a valid card. Raises for no card.

    What needs the loop classes themselves (FV202, FV206) is checked when they are resolved.
    """
    found = list(value_types(card))
    for rule in RULES:
        try:
            found += rule(card)
        except Exception as error:  # a rule reads values of the declared types, which these are not
            if not any(finding.code == "FV217" for finding in found):
                found.append(_unjudged(rule.__name__, error))
    return tuple(_named(card, finding) for finding in found)


def _unjudged(rule: str, error: Exception) -> CardError:
    return CardError(
        "FV217",
        name=f"rule {rule.strip('_')}",
        rule=f"cannot be judged: {type(error).__name__}: {error}",
        remedy="Correct the values that it reads.",
    )


def _model_id(card: ModelCard) -> Iterator[CardError]:
    """Ids name files and appear in addresses, so they hold nothing that a path or a shell reads otherwise."""
    if not _MODEL_ID.fullmatch(card.model_id):
        yield CardError(
            "FV216",
            name="model_id",
            value=card.model_id,
            rule="is not a legal id",
            legal="<plugin>/<model>, each of a-z and 0-9 in words that one of . _ - joins, as in wan21/t2v-1.3b",
            remedy="Rename it.",
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
            if node.when is not None and node.when.field not in (legal := _comparable(card, program)):
                yield _unknown(f"programs.{task}.{node.id}.when.field", node.when.field, legal)
            elif node.when is not None and not _comparable_with(card, node.when):
                yield _default(
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


def _programs(card: ModelCard) -> Iterator[CardError]:
    for task, program in card.programs.items():
        yield from reads(card, task, program)


def _node_ids(card: ModelCard) -> Iterator[CardError]:
    for task, program in card.programs.items():
        ids = [node.id for node in program.nodes]
        for ident in sorted({ident for ident in ids if ids.count(ident) > 1}):
            yield CardError(
                "FV215",
                name=f"programs.{task}",
                value=ident,
                rule=f"is the id of {ids.count(ident)} nodes",
                legal="an id per node",
                remedy="Give each node an id of its own.",
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
    if unsound := [
        *_below_one("limits.size", size),
        *_below_one("limits.frames", frames),
        *_below_one("latent", latent),
    ]:
        yield from unsound
        return
    if size.multiple % latent.spatial:
        yield _default(
            "limits.size.multiple", size.multiple, f"multiples of latent.spatial, {latent.spatial}"
        )
    if frames.multiple % latent.temporal:
        legal = f"multiples of latent.temporal, {latent.temporal}"
        yield _default("limits.frames.multiple", frames.multiple, legal)


def _below_one(name: str, rule: SizeRule | FrameRule | LatentSpec) -> Iterator[CardError]:
    """All that these rules count is counted from 1 up."""
    for field in fields(rule):
        if (value := getattr(rule, field.name)) < 1:
            yield _default(f"{name}.{field.name}", value, "a whole number from 1 up")


def _defaults(card: ModelCard) -> Iterator[CardError]:
    defaults, limits = card.defaults, card.limits
    if (
        limits.size.multiple < 1 or limits.frames.multiple < 1
    ):  # told already, and nothing is a multiple of them
        return
    if not limits.size.allows(defaults.size):
        yield _default("defaults.size", str(defaults.size), limits.size.legal())
    if not limits.frames.allows(defaults.frames):
        yield _default("defaults.frames", defaults.frames, limits.frames.legal())
    if not MIN_FPS <= defaults.fps <= MAX_FPS:
        yield _default("defaults.fps", defaults.fps, f"{MIN_FPS:g} to {MAX_FPS}")
    for name, rule in card.params.items():
        has_value = rule.default is not None or hasattr(card.recipe, name)  # what has none is told as FV204
        if has_value and not rule.allows(card.param_default(name)):
            yield _default(f"params.{name}", card.param_default(name), rule.legal())
        for task, program in card.programs.items():
            if name in program.defaults and not rule.allows(program.defaults[name]):
                yield _default(f"programs.{task}.defaults.{name}", program.defaults[name], rule.legal())


def _default(name: str, value: object, legal: str) -> CardError:
    return CardError(
        "FV207",
        name=name,
        value=value,
        rule="breaks the card's own limits",
        legal=legal,
        remedy="Correct the value or the limit.",
    )


RULES: Final[tuple[Callable[[ModelCard], Iterator[CardError]], ...]] = (
    _model_id,
    assumed_loop,
    _references,
    _node_ids,
    _programs,
    sampler_facts,
    made_in,
    _precision,
    parity,
    measurable,
    placements,
    _grid,
    _defaults,
)
