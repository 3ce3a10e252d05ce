"""The legal requests of a card as JSON Schema (2020-12): from its rules alone, without weights, loops or torch."""

from __future__ import annotations

import sys
from functools import cache
from itertools import groupby
from typing import Final

from fv_core.card.card import ModelCard
from fv_core.card.limits import MAX_FPS, MIN_FPS, ParamRule
from fv_core.request import Numerics, is_visible

SEEDS: Final = 2**64

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SURROGATES: Final = "\\ud800-\\udfff"

Schema = dict[str, object]


def request_schema(card: ModelCard) -> Schema:
    """What a request for `card` may say: exactly the JSON objects whose values settle without an error.

    Size is [width, height] in pixels. A property that is left out takes its `default`, or, where it has none, is
    drawn (seed) or the engine's own (numerics). JSON Schema takes 5.0 for an integer; fv takes whole numbers only as
    such, without a point. It cannot resolve HTML references either: a prompt of nothing but `&nbsp;` passes here and
    is refused when it is settled.
    """
    properties: Schema = {
        "prompt": {"type": "string", "pattern": _visible()},
        "model": {"const": card.model_id},
        "task": {"enum": [str(task) for task in card.capabilities], "default": card.capabilities[0]},
        "negative_prompt": {
            "type": "string",
            "pattern": f"^[^{_SURROGATES}]*$",
            "default": card.defaults.negative_prompt,
        },
        "seed": {"type": "integer", "minimum": 0, "maximum": SEEDS - 1},
        "size": _size(card),
        "frames": _frames(card),
        "fps": {
            "type": "number",
            "minimum": MIN_FPS,
            "maximum": MAX_FPS,
            "default": card.defaults.fps,
        },
        "steps": _steps(card),
        "guidance": _guidance(card),
        "numerics": {"enum": [str(promise) for promise in Numerics]},
        "params": {
            "type": "object",
            "properties": {name: _param(card, name, rule) for name, rule in card.params.items()},
            "additionalProperties": False,
        },
    }
    return {
        "$schema": _DIALECT,
        "title": f"Request for {card.model_id}",
        "description": card.summary,
        "type": "object",
        "properties": properties,
        "required": ["prompt"],
        "additionalProperties": False,
    }


def _size(card: ModelCard) -> Schema:
    rule, default = card.limits.size, card.defaults.size
    side = {
        "type": "integer",
        "multipleOf": rule.multiple,
        "minimum": rule.smallest,
        "maximum": rule.largest,
    }
    return {
        "description": f"width and height: {rule.legal()}",
        "type": "array",
        "items": side,
        "minItems": 2,
        "maxItems": 2,
        "default": [default.width, default.height],
    }


def _frames(card: ModelCard) -> Schema:
    rule = card.limits.frames
    # JSON Schema has no "one more than a multiple", so the legal counts are listed.
    counts = list(range(1, rule.largest + 1, rule.multiple))
    return {"description": rule.legal(), "enum": counts, "default": card.defaults.frames}


def _steps(card: ModelCard) -> Schema:
    least, most = card.limits.steps
    return {"type": "integer", "minimum": least, "maximum": most, "default": card.recipe.steps}


def _guidance(card: ModelCard) -> Schema:
    least, most = card.limits.guidance
    return {
        "description": f"{least:g} is off",
        "type": "number",
        "minimum": least,
        "maximum": most,
        "default": card.recipe.guidance,
    }


def _param(card: ModelCard, name: str, rule: ParamRule) -> Schema:
    told: Schema = {"description": rule.doc, "default": card.param_default(name)}
    if rule.choices:
        return {**told, "enum": list(rule.choices)}
    if rule.yes_or_no:
        return {**told, "type": "boolean"}
    return {
        **told,
        "type": "integer" if rule.whole else "number",
        "minimum": rule.lowest,
        "maximum": rule.highest,
    }


@cache
def _visible() -> str:
    """A pattern of text with at least one visible character and no half of one."""
    unseen = [code for code in range(sys.maxunicode + 1) if not is_visible(chr(code))]
    ranges = []
    for _, run in groupby(enumerate(unseen), lambda pair: pair[1] - pair[0]):
        codes = [code for _, code in run]
        ranges.append(f"{chr(codes[0])}-{chr(codes[-1])}")
    text = f"[^{_SURROGATES}]*"
    return f"^{text}[^{_SURROGATES}{''.join(ranges)}]{text}$"
