"""Load-time rules: a card that breaks one is refused before anything of it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from fv_core.card import agreement, bounds, names, recipe_rules, tasks
from fv_core.card.card import ModelCard
from fv_core.card.placement import placements
from fv_core.card.reads import reads
from fv_core.card.references import references
from fv_core.card.value_types import value_types
from fv_core.errors import CardError


class Rule(NamedTuple):
    """One rule, and the fields of the card that it rests on: it can judge them only where they are sound."""

    judge: Callable[[ModelCard], Iterator[CardError]]
    parts: tuple[str, ...]


def validate(card: ModelCard) -> tuple[CardError, ...]:
    """The rules that the card breaks, in the order a reader would mend them; () for a valid card. Raises for no card.

    Types are judged first, then each value for itself, then what names what, then values together. A rule is left out
    where an earlier phase found something in what it rests on, so that no finding is a consequence of another.
    What needs the loop classes themselves (FV202, FV206) is checked when they are resolved.
    """
    found = list(value_types(card))
    for phase in PHASES:
        before = tuple(found)
        for rule in phase:
            if not any(_touches(finding, part) for finding in before for part in rule.parts):
                found += rule.judge(card)
    return tuple(_named(card, finding) for finding in found)


def _touches(finding: CardError, part: str) -> bool:
    """Whether a finding is about the part, something in it, or what it is in: `limits` touches `limits.steps`."""
    pairs = zip(re.split(r"\W+", finding.name), part.split("."), strict=False)
    return all(one == other for one, other in pairs)


def _named(card: ModelCard, error: CardError) -> CardError:
    return CardError(
        error.code,
        name=f'card "{card.model_id}": {error.name}',
        value=error.value,
        rule=error.rule,
        legal=error.legal,
        remedy=error.remedy,
    )


PHASES: Final = (
    (
        Rule(names.model_id, ("model_id",)),
        Rule(names.family, ("family",)),
        Rule(names.ids, ("components", "loops", "params", "programs")),
        Rule(names.repository, ("checkpoint",)),
        Rule(names.files, ("components",)),
        Rule(tasks.offered, ("programs",)),
        Rule(tasks.node_ids, ("programs",)),
        Rule(tasks.consistent, ("programs",)),
        Rule(bounds.recipe_facts, ("recipe",)),
        Rule(bounds.precision, ("precision",)),
        Rule(bounds.components, ("components",)),
        Rule(bounds.latent, ("latent",)),
        Rule(bounds.limits, ("limits",)),
        Rule(bounds.frame_rate, ("defaults",)),
        Rule(recipe_rules.claim, ("parity",)),
    ),
    (Rule(references, ("components", "loops", "params", "programs", "recipe")),),
    (
        Rule(recipe_rules.assumed_loop, ("loops", "programs", "recipe.assumes_loop")),
        Rule(reads, ("params", "programs")),
        Rule(
            recipe_rules.steps,
            ("limits.steps", "loops", "recipe.assumes_loop", "recipe.steps", "recipe.steps_fixed"),
        ),
        Rule(recipe_rules.guidance, ("limits.guidance", "recipe.guidance")),
        Rule(recipe_rules.made_in, ("precision", "recipe.precision")),
        Rule(recipe_rules.required, ("parity.rungs", "recipe.consistency_required")),
        Rule(placements, ("loops", "parallelism")),
        Rule(agreement.grid, ("latent", "limits.frames", "limits.size")),
        Rule(agreement.default_size, ("defaults.size", "limits.size")),
        Rule(agreement.default_frames, ("defaults.frames", "limits.frames")),
        Rule(agreement.param_defaults, ("params", "programs", "recipe")),
    ),
)
"""In the order in which they are judged."""
