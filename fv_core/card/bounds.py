"""Rules of single values: each is one that can be computed with, whatever the other values of the card are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from typing import Final

from fv_core.card.card import LatentSpec, ModelCard
from fv_core.card.limits import MAX_FPS, MAX_FRAMES, MIN_FPS, FrameRule, SizeRule
from fv_core.errors import CardError

DTYPES: Final = ("float32", "bfloat16", "float16")
"""Precisions, as torch names them; a card may list fewer."""

_COUNT: Final = "a whole number from 1 up"


def limits(card: ModelCard) -> Iterator[CardError]:
    """FV207: all that limits count is counted from 1 up, and guidance begins at 1, which is off."""
    yield from _below_one("limits.size", card.limits.size)
    yield from _below_one("limits.frames", card.limits.frames)
    if card.limits.frames.largest > MAX_FRAMES:
        yield breaks("limits.frames.largest", card.limits.frames.largest, f"1 to {MAX_FRAMES}")
    if card.limits.steps[0] < 1:
        yield breaks("limits.steps", card.limits.steps, f"from {_COUNT}")
    if card.limits.guidance[0] < 1:
        yield breaks("limits.guidance", card.limits.guidance, "from 1, which is off, up")


def latent(card: ModelCard) -> Iterator[CardError]:
    """FV207: a grid has cells."""
    yield from _below_one("latent", card.latent)


def _below_one(name: str, rule: SizeRule | FrameRule | LatentSpec) -> Iterator[CardError]:
    for field in fields(rule):
        if (value := getattr(rule, field.name)) < 1:
            yield breaks(f"{name}.{field.name}", value, _COUNT)


def frame_rate(card: ModelCard) -> Iterator[CardError]:
    """FV207: a file can hold the default frame rate."""
    if not MIN_FPS <= card.defaults.fps <= MAX_FPS:
        yield breaks("defaults.fps", card.defaults.fps, f"{MIN_FPS:g} to {MAX_FPS}")


def recipe_facts(card: ModelCard) -> Iterator[CardError]:
    """FV203: the facts are such as a sampler can take."""
    recipe = card.recipe
    if recipe.steps < 1:
        yield fact("recipe.steps", recipe.steps, _COUNT)
    if recipe.shift <= 0:
        yield fact("recipe.shift", recipe.shift, "a finite number greater than 0")
    if recipe.guidance < 1:
        yield fact("recipe.guidance", recipe.guidance, "from 1, which is off, up")
    falling = all(a > b for a, b in pairwise(recipe.sigmas)) and all(0 < s <= 1 for s in recipe.sigmas)
    if recipe.sigmas and not (recipe.steps_fixed and len(recipe.sigmas) == recipe.steps and falling):
        yield fact(
            "recipe.sigmas", recipe.sigmas, f"{recipe.steps} falling numbers in (0, 1], with steps_fixed"
        )


def components(card: ModelCard) -> Iterator[CardError]:
    """FV207: a component has a known precision and no negative number of parameters."""
    for name, spec in card.components.items():
        if spec.dtype not in ("card", *DTYPES):
            yield breaks(f"components.{name}.dtype", spec.dtype, ", ".join(("card", *DTYPES)))
        if spec.parameters < 0:
            yield breaks(
                f"components.{name}.parameters", spec.parameters, "a number from 1 up; 0 states none"
            )


def precision(card: ModelCard) -> Iterator[CardError]:
    """FV207: precisions are known ones, and what `auto` means is one of them."""
    legal = card.precision.legal
    for dtype in legal:
        if dtype not in DTYPES:
            yield breaks("precision.legal", dtype, ", ".join(DTYPES))
    for name in ("cpu", "accelerator"):
        if (dtype := getattr(card.precision, name)) not in legal:
            yield breaks(f"precision.{name}", dtype, ", ".join(legal))


def breaks(name: str, value: object, legal: str) -> CardError:
    """FV207."""
    return CardError(
        "FV207",
        name=name,
        value=value,
        rule="breaks the card's own limits",
        legal=legal,
        remedy="Correct the value or the limit.",
    )


def fact(name: str, value: object, legal: str) -> CardError:
    """FV203."""
    return CardError(
        "FV203",
        name=name,
        value=value,
        rule="is not a legal sampler fact",
        legal=legal,
        remedy="Correct the recipe, or the card's limits and loops.",
    )
