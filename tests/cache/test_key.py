"""The key of a result: equal if and only if all of it is equal, type and bits included."""

from __future__ import annotations

import dataclasses
import math
import struct
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fv_core.cache.key import CacheKey, stated
from fv_core.cache.ref import ValueRef

FIELDS: dict[str, Any] = {
    "model": "d1", "component": "text", "op": "encode", "weights": "seed 0", "version": 0, "adapters": (),
    "precision": "float32", "device": "cpu", "environment": "e1", "numerics": "exact",
    "static": (), "inputs": (), "previous": (), "part": "output", "contract": 1,
}  # fmt: skip
OTHER: dict[str, Any] = {
    **dict.fromkeys(FIELDS, "other"), "version": 1, "contract": 2, "adapters": ("paint:1.0",),
    "static": stated({"first": True}), "inputs": stated({"text": "a"}), "previous": ("",),
}  # fmt: skip
VALUES = (
    st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.builds(ValueRef, hash=st.text("0123456789abcdef"))
)
NAMED = st.dictionaries(st.text(max_size=3), VALUES, max_size=3)


def bits(value: object) -> object:
    """What tells two values apart: their type, and their bits."""
    told = struct.pack("d", math.nan if value != value else value) if isinstance(value, float) else value
    return type(value), told


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return {name: bits(value) for name, value in one.items()} == {
        name: bits(value) for name, value in other.items()
    }


def test_every_field_has_another_value_to_be_tried() -> None:
    names = {field.name for field in dataclasses.fields(CacheKey)}
    assert names == FIELDS.keys() == OTHER.keys()


@pytest.mark.parametrize("name", FIELDS)
def test_a_key_that_differs_in_one_field_is_another(name: str) -> None:
    key, other = CacheKey(**FIELDS), CacheKey(**{**FIELDS, name: OTHER[name]})
    assert key != other
    assert key.digest() != other.digest()
    assert {key: 1}.get(other) is None


@given(NAMED, NAMED)
def test_values_are_stated_equal_if_and_only_if_type_and_bits_are(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (stated(one) == stated(other)) is same(one, other)
    assert stated(one) == stated(dict(reversed(one.items())))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("1", 1),
        ("nan", math.nan),
        ("ab", ValueRef(hash="ab")),
        (2**53, 2**53 + 1),
    ],
)
def test_values_that_python_takes_for_equal_or_writes_alike_are_told_apart(one: Any, other: Any) -> None:
    assert stated({"a": one}) != stated({"a": other})
    assert stated({"a": math.nan}) == stated({"a": float("nan")})


@given(
    st.lists(st.sampled_from(sorted(FIELDS)), max_size=3),
    st.lists(st.sampled_from(sorted(FIELDS)), max_size=3),
)
def test_digests_are_equal_if_and_only_if_keys_are(one: list[str], other: list[str]) -> None:
    first, second = (
        CacheKey(**{**FIELDS, **{name: OTHER[name] for name in names}}) for names in (one, other)
    )
    assert (first == second) is (set(one) == set(other)) is (first.digest() == second.digest())


def test_a_digest_is_the_same_in_every_process() -> None:
    code = "from test_key import CacheKey, FIELDS; print(CacheKey(**FIELDS).digest())"
    code = f"import sys; sys.path.insert(0, {str(__file__).rpartition('/')[0]!r}); {code}"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.strip() == CacheKey(**FIELDS).digest()


def test_the_module_loads_no_torch() -> None:
    code = "import sys, fv_core.cache.key; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
