"""The codec: what it encodes it gives back bit for bit, and what it does not expect it refuses with one error."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from enum import StrEnum
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fv_core import codec
from fv_core.codec import JSON, DecodeError
from fv_core.request import (
    Modality,
    ModalPart,
    Numerics,
    OutputSpec,
    Request,
    ResolvedRequest,
    Size,
    TaskType,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    value: float
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Outer:
    number: float
    whole: int
    flag: bool
    text: str
    colour: Colour
    maybe: float | None
    pair: tuple[int, str]
    many: tuple[Inner, ...]
    by_colour: Mapping[Colour, float]
    either: Inner | Colour | int
    anything: object = None
    params: Mapping[str, float | int | str | bool] = field(default_factory=dict)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def through_json(kind: Any, value: object) -> Any:
    return codec.decode(kind, json.loads(json.dumps(codec.encode(value))))


floats = st.floats(allow_nan=False)
inners = st.builds(Inner, value=floats, name=st.text())
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), floats, st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)
outers = st.builds(
    Outer,
    number=floats,
    whole=st.integers(),
    flag=st.booleans(),
    text=st.text(),
    colour=st.sampled_from(Colour),
    maybe=st.none() | floats,
    pair=st.tuples(st.integers(), st.text()),
    many=st.lists(inners, max_size=3).map(tuple),
    by_colour=st.dictionaries(st.sampled_from(Colour), floats),
    either=st.one_of(inners, st.sampled_from(Colour), st.integers()),
    anything=plain,
    params=st.dictionaries(st.text(), st.one_of(floats, st.integers(), st.text(), st.booleans()), max_size=3),
)


@given(outers)
def test_every_value_comes_back_equal(value: Outer) -> None:
    again = through_json(Outer, value)
    assert again == value
    assert {name: type(item) for name, item in again.params.items()} == {
        name: type(item) for name, item in value.params.items()
    }


@given(st.one_of(st.floats(allow_nan=False), st.sampled_from([-0.0, 5e-324, math.inf, -math.inf, math.nan])))
def test_floats_keep_every_bit(value: float) -> None:
    assert bits(through_json(Inner, Inner(value=value)).value) == bits(value)
    assert bits(through_json(Mapping[str, object], {"x": [value]})["x"][0]) == bits(value)


def widened(value: Any, default: Any) -> Any:
    """`value` as a later version has it: each dataclass in it, at any depth, with a field more that has a default."""
    if isinstance(value, tuple):
        return tuple(widened(item, default) for item in value)
    if isinstance(value, dict):
        return {key: widened(item, default) for key, item in value.items()}
    if not isinstance(value, (Inner, Outer)):
        return value
    added = field(default_factory=lambda: default)
    later = make_dataclass(
        type(value).__name__, [("later", object, added)], bases=(type(value),), frozen=True, kw_only=True
    )
    return later(**{own.name: widened(getattr(value, own.name), default) for own in fields(value)})


@given(outers, st.one_of(plain, inners))
def test_a_new_field_with_a_default_changes_no_digest_and_a_value_of_its_own_does(
    value: Outer, default: object
) -> None:
    later = widened(value, default)
    assert codec.digest(later) == codec.digest(value)
    assert codec.digest(replace(later, later=["other", default])) != codec.digest(value)


@given(outers, outers, st.sampled_from([field.name for field in fields(Outer)]))
def test_a_changed_value_changes_the_digest_and_nothing_else_does(
    value: Outer, other: Outer, name: str
) -> None:
    changed = replace(value, **{name: getattr(other, name)})
    texts = [json.dumps(codec.encode(one), sort_keys=True) for one in (value, changed)]
    assert (codec.digest(value) == codec.digest(changed)) == (texts[0] == texts[1])


@given(outers)
def test_absent_fields_get_their_defaults(value: Outer) -> None:
    assert codec.decode(Outer, json.loads(codec.canonical(codec.sparse(value)))) == value


def test_a_default_is_left_out_only_where_its_text_is_the_same() -> None:
    @dataclass(frozen=True)
    class Number:
        value: float | int | bool = 1
        missing: float = math.nan

    assert codec.sparse(Number()) == codec.sparse(Number(missing=math.nan)) == {"type": "Number"}
    assert len({codec.digest(Number(value)) for value in (1, 1.0, True)}) == 3
    assert len({codec.digest(Number(missing=zero)) for zero in (0.0, -0.0)}) == 2


requests = st.builds(
    Request,
    prompt=st.text(),
    model=st.none() | st.text(),
    task=st.none() | st.sampled_from(TaskType),
    seed=st.none() | st.integers(),
    size=st.none() | st.tuples(st.integers(), st.integers()),
    fps=st.none() | floats,
    guidance=st.none() | floats,
    numerics=st.none() | st.sampled_from(Numerics),
    inputs=st.lists(st.builds(ModalPart, modality=st.sampled_from(Modality), path=st.text()), max_size=2).map(
        tuple
    ),
    params=st.dictionaries(st.text(), st.one_of(floats, st.integers(), st.text(), st.booleans()), max_size=3),
    output=st.builds(OutputSpec, keep=st.lists(st.text(), max_size=2).map(tuple)),
)


@given(requests)
def test_requests_come_back_equal(request: Request) -> None:
    assert through_json(Request, request) == request


def test_settled_request_comes_back_equal() -> None:
    request = ResolvedRequest(
        model="toy/tiny", task=TaskType.T2V, prompt="p", negative_prompt="", seed=2**64 - 1, size=Size(64, 32),
        frames=5, fps=math.pi, steps=3, guidance=1.0, numerics=Numerics.FAST, params={"a": 1, "b": 1.0, "c": True},
        keep=("latent",), adjusted=("x",),
    )  # fmt: skip
    assert through_json(ResolvedRequest, request) == request


WRONG: list[tuple[Any, JSON]] = [
    (float, 10**400),
    (float, "1"),
    (float, True),
    (float, {"float": "five"}),
    (float, {"float": ["nan"]}),
    (float, {"float": None}),
    (int, 1.0),
    (int, True),
    (int, "1"),
    (bool, 1),
    (str, 1),
    (str, None),
    (Colour, "green"),
    (Colour, ["red"]),
    (Inner, {"type": "Outer", "value": 1.0, "name": ""}),
    (Inner, {"type": "Inner", "name": ""}),
    (Inner, {"type": "Inner", "value": 1.0, "name": "", "more": 1}),
    (Inner, {"value": 1.0, "name": ""}),
    (Inner, [1.0, ""]),
    (Inner, None),
    (Inner | None, 5),
    (tuple[int, ...], {"0": 1}),
    (tuple[int, ...], [1, "2"]),
    (tuple[int, str], [1]),
    (Mapping[str, int], [["a", 1]]),
    (Mapping[Colour, int], {"green": 1}),
    (Tensor, "t0"),
    (list[int], [1]),
    (set, []),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stored"), WRONG, ids=repr)
def test_what_is_not_of_the_expected_type_is_refused(kind: Any, stored: JSON) -> None:
    with pytest.raises(DecodeError):
        codec.decode(kind, stored)


@given(st.sampled_from([Outer, Inner, Request, Colour, float, tuple[Inner, ...]]), plain)
def test_any_json_is_decoded_or_refused_and_nothing_else(kind: Any, stored: Any) -> None:
    try:
        codec.decode(kind, stored)
    except DecodeError:
        return
    assert kind is not Outer


@pytest.mark.parametrize(
    "value",
    [{1, 2}, bytearray(b"x"), object(), torch.zeros(1), Inner],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_json_form_is_refused_when_it_is_encoded(value: object) -> None:
    with pytest.raises(TypeError):
        codec.encode(value)


def test_a_file_never_names_the_class_to_build() -> None:
    stored = {"type": "ModalPart", "modality": "image", "path": "/etc/passwd"}
    with pytest.raises(DecodeError):
        codec.decode(Inner, stored)  # type: ignore[arg-type]
