"""Probes: the small requests that a card is measured with, made from its limits and its recipe."""

from __future__ import annotations

from fv_core.card import ModelCard
from fv_core.request import Request, Size

_STEPS = 6  # a solver of second order has then begun, run and ended
_PROMPT = "a red circle moving right over a green square"


def probes(card: ModelCard) -> tuple[Request, ...]:
    """Two requests: guided with a negative prompt, and without guidance. As small as the card allows.

    Sides differ, so that swapped axes show, and there are three latent frames, so that a decoder's cache is used.
    """
    lowest = card.limits.guidance[0]
    return (
        _probe(card, seed=7, frames=_frames(card, 2), guidance=card.recipe.guidance, negative="grey, still"),
        _probe(card, seed=2**63 + 11, frames=_frames(card, 1), guidance=lowest, negative=None),
    )


def _probe(card: ModelCard, *, seed: int, frames: int, guidance: float, negative: str | None) -> Request:
    size = _size(card)
    return Request(
        prompt=_PROMPT,
        model=card.model_id,
        negative_prompt=negative,
        seed=seed,
        size=(size.width, size.height),
        frames=frames,
        steps=_steps(card),
        guidance=guidance,
    )


def _size(card: ModelCard) -> Size:
    rule = card.limits.size
    return rule.nearest(Size(rule.smallest + rule.multiple, rule.smallest))


def _frames(card: ModelCard, groups: int) -> int:
    return card.limits.frames.nearest(1 + groups * card.limits.frames.multiple)


def _steps(card: ModelCard) -> int:
    recipe, (least, most) = card.recipe, card.limits.steps
    return recipe.steps if recipe.steps_fixed else min(max(_STEPS, least), most)
