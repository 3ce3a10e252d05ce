"""The request schema and `resolve` agree: what one takes the other takes, on values around every border."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fv_core.card import FrameRule, Limits, ModelCard, ParamRule, SizeRule, derive
from fv_core.card.schema import request_schema
from fv_core.errors import RequestError
from fv_core.plugins import find_card
from fv_core.request import Numerics, Request, TaskType
from fv_core.runtime.requests.resolve import resolve

TINY = find_card("wan21/micro")
CARDS = {
    "tiny": TINY,
    "real": find_card("wan21/t2v-1.3b"),
    "student": derive(TINY, recipe={"steps": 4, "steps_fixed": True}, limits={"steps": (4, 4)}),
    "narrow": derive(
        TINY,
        recipe={"steps": 5, "guidance": 2.0},
        limits=Limits(
            size=SizeRule(multiple=32, smallest=40, largest=200),
            frames=FrameRule(multiple=8, largest=30),
            steps=(3, 9),
            guidance=(1.5, 2.5),
        ),
        params={**TINY.params, "mode": ParamRule(doc="x", default="a", choices=("a", "b"))},
    ),
}
VALIDATORS = {name: jsonschema.Draft202012Validator(request_schema(card)) for name, card in CARDS.items()}

odd = st.one_of(st.none(), st.booleans(), st.text(max_size=3), st.lists(st.integers(), max_size=3))
whole = st.one_of(st.integers(-5, 120), st.integers(), st.sampled_from([4093, 4094, 2**64 - 1, 2**64]))
parts = st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer())
numbers = st.one_of(whole, parts, st.sampled_from([0.01, 0.0099, 100.5, 240, 240.5, 1.5, 2.5]))
sides = st.one_of(st.integers(0, 16).map(lambda n: 16 * n), whole)
prompts = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        ["", " ", "\u200b", "\U000e0001", "\u00ad\t", "a", "a\n", "\ud800a", "\u3000", "\u0600x", "é"]
    ),
)
fields: dict[str, st.SearchStrategy[Any]] = {
    "negative_prompt": prompts | odd,
    "seed": whole | odd,
    "size": st.one_of(st.tuples(sides, sides).map(list), st.lists(sides, max_size=3), odd),
    "frames": whole | odd,
    "fps": numbers | odd,
    "steps": whole | odd,
    "guidance": numbers | odd,
    "numerics": st.sampled_from([*Numerics]).map(str) | odd,
    "task": st.sampled_from([*TaskType, "i2v"]).map(str) | odd,
    "params": st.dictionaries(st.sampled_from(["shift", "mode", "tempo"]), numbers | odd, max_size=2),
}
one_field = st.one_of(
    *(st.fixed_dictionaries({"prompt": st.just("x"), name: values}) for name, values in fields.items())
)
"""A field on its own: only there does its border decide."""
bodies = one_field | st.fixed_dictionaries({"prompt": prompts}, optional=fields)


def settles(card: ModelCard, body: dict[str, Any]) -> bool:
    try:
        resolve(Request(**body), card, Numerics.EXACT)
    except RequestError:
        return False
    return True


@pytest.mark.parametrize("name", CARDS)
@settings(max_examples=300, deadline=None, derandomize=True)
@given(body=bodies)
@example(body={"prompt": "a cat"})
@example(body={"prompt": "\U000e0001"})
@example(body={"prompt": "x", "frames": 4093})
@example(body={"prompt": "x", "seed": 2**64})
@example(body={"prompt": "x", "size": []})
@example(body={"prompt": "x", "params": {"shift": True}})
@example(
    body={"prompt": "x", "seed": 2**64 - 1, "steps": 4, "guidance": 2.5, "size": [64, 192], "frames": 25}
)
def test_schema_and_resolve_agree(name: str, body: dict[str, Any]) -> None:
    stated = {key: value for key, value in body.items() if value is not None}
    stated["params"] = {key: value for key, value in stated.get("params", {}).items() if value is not None}
    assert VALIDATORS[name].is_valid(stated) is settles(CARDS[name], stated)


@pytest.mark.parametrize("name", CARDS)
def test_the_defaults_are_legal_and_are_what_resolve_settles(name: str) -> None:
    card, schema = CARDS[name], request_schema(CARDS[name])
    properties: Any = schema["properties"]
    told = {key: value["default"] for key, value in properties.items() if "default" in value}
    told["params"] = {key: value["default"] for key, value in properties["params"]["properties"].items()}
    settled = resolve(Request(prompt="x", seed=1), card, Numerics.EXACT)
    assert resolve(Request(prompt="x", seed=1, **told), card, Numerics.EXACT) == settled
    VALIDATORS[name].validate({"prompt": "x", **told})


def test_the_schema_is_one_and_is_plain_json() -> None:
    for card in CARDS.values():
        jsonschema.Draft202012Validator.check_schema(json.loads(json.dumps(request_schema(card))))


def test_unknown_fields_and_other_models_are_refused() -> None:
    check = VALIDATORS["tiny"]
    assert not check.is_valid({"prompt": "x", "tempo": 1})
    assert not check.is_valid({"prompt": "x", "model": "wan21/t2v-14b"})
    assert not check.is_valid({"steps": 4})
    assert not check.is_valid({"prompt": "x", "guidance": math.inf})


def test_a_change_of_a_limit_changes_the_schema() -> None:
    wider = replace(TINY, limits=replace(TINY.limits, frames=FrameRule(multiple=1, largest=5)))
    properties: Any = request_schema(wider)["properties"]
    assert properties["frames"]["enum"] == [1, 2, 3, 4, 5]
