"""Probes: the small requests that a card is measured with, its own or made from its limits and its recipe."""

from __future__ import annotations

from dataclasses import replace

from fv_core.card import ModelCard
from fv_core.plugins.reference import resolve_reference
from fv_core.request import EVERYTHING, Numerics, OutputSpec, Request, Size, TaskType
from fv_core.runtime.records.samples import sample

_STEPS = 6  # a solver of second order has then begun, run and ended
_PROMPT = "a red circle moving right over a green square"


def probes(card: ModelCard) -> tuple[Request, ...]:
    """The requests that the card names (`ParitySpec.probes`), or requests as small as the card allows: of its first
    task one guided with a negative prompt and one without guidance, of every other task one, and of the first task
    once more for each parameter that is yes or no, turned over.

    Sides differ, so that swapped axes show, and there are three latent frames, so that a decoder's cache is used.
    """
    if card.parity is not None and card.parity.probes:
        make = resolve_reference(card.parity.probes, owner=f"{card.model_id} probes")
        return tuple(make(card))
    first, *others = card.capabilities
    lowest = card.limits.guidance[0]
    guided = _probe(
        card, first, seed=7, groups=2, guidance=card.recipe.guidance, negative_prompt="grey, still"
    )
    plain = _probe(card, first, seed=2**63 + 11, groups=1, guidance=lowest)
    turned = (
        _probe(card, first, seed=13, groups=1, params={name: not card.param_default(name, first)})
        for name, rule in card.params.items()
        if rule.yes_or_no
    )
    return guided, plain, *(_probe(card, task, seed=17, groups=1) for task in others), *turned


def as_measured(request: Request) -> Request:
    """The request as parity runs it: under reference numerics, with all outputs kept."""
    return replace(request, numerics=Numerics.REFERENCE, output=OutputSpec(keep=(EVERYTHING,)))


def _probe(card: ModelCard, task: TaskType, *, seed: int, groups: int, **more: object) -> Request:
    program, size = card.programs[task], _size(card)
    frames = _frames(card, groups)
    asked = {
        "size": (size.width, size.height),
        "frames": frames,
        "steps": _steps(card),
        **more,
    }
    if program.fixed.get("frames") == 0:
        del asked["size"]
    if all("request.negative_prompt" not in node.reads.values() for node in program.nodes):
        asked.pop("negative_prompt", None)
    return Request(
        prompt=_PROMPT,
        model=card.model_id,
        task=task,
        seed=seed,
        inputs=tuple(sample(spec, size, frames) for spec in program.inputs),
        **{name: value for name, value in asked.items() if name not in program.fixed},  # type: ignore[arg-type]
    )


def _size(card: ModelCard) -> Size:
    rule = card.limits.size
    return rule.nearest(Size(rule.smallest + rule.multiple, rule.smallest))


def _frames(card: ModelCard, groups: int) -> int:
    return card.limits.frames.nearest(1 + groups * card.limits.frames.multiple)


def _steps(card: ModelCard) -> int:
    recipe, (least, most) = card.recipe, card.limits.steps
    return recipe.steps if recipe.steps_fixed else min(max(_STEPS, least), most)
