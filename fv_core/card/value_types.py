"""Whether every value of a record is of its declared type: a dataclass checks nothing when it is made."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, Literal, cast

from fv_core import codec
from fv_core.errors import CardError

_SURROGATES: Final = range(0xD800, 0xE000)


def value_types(record: object) -> Iterator[CardError]:
    """FV217 for each value of a dataclass that could not come back from its JSON as it is, by the name of its field.

    Numbers are finite, and text is such as UTF-8 can hold.
    """
    yield from _fields(record, "")


def _fields(value: Any, path: str) -> Iterator[CardError]:
    for name, kind in codec.field_types(cast(Any, type(value))).items():
        yield from _value(getattr(value, name), kind, f"{path}{name}")


def _value(value: object, kind: Any, path: str) -> Iterator[CardError]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if _is_declared_dataclass(value, kind):
        yield from _fields(value, f"{path}.")
    elif origin is Mapping and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaf(key, args[0], f"{path}, key")
            yield from _value(item, args[1], f"{path}[{key}]")
    elif origin is tuple and isinstance(value, tuple) and args[1:] == (Ellipsis,):
        for index, item in enumerate(value):
            yield from _value(item, args[0], f"{path}[{index}]")
    elif origin is tuple and isinstance(value, tuple) and len(value) == len(args):
        for index, (item, of) in enumerate(zip(value, args, strict=True)):
            yield from _value(item, of, f"{path}[{index}]")
    elif origin is tuple:
        yield _wrong(path, value, f"is not of its declared type (expected {_shape(args)})")
    else:
        yield from _leaf(value, kind, path)


def _is_declared_dataclass(value: object, kind: Any) -> bool:
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return any(dataclasses.is_dataclass(one) and isinstance(value, cast(type, one)) for one in kinds)


def _leaf(value: object, kind: Any, path: str) -> Iterator[CardError]:
    if typing.get_origin(kind) is Literal:
        if value not in (options := typing.get_args(kind)):
            yield _wrong(path, value, "is none of the values that there are", ", ".join(map(repr, options)))
        return
    try:
        codec.decode(kind, codec.encode(value))
    except (codec.DecodeError, TypeError, RecursionError) as error:
        legal = ", ".join(kind) if isinstance(kind, type) and issubclass(kind, Enum) else ""
        yield _wrong(path, value, f"is not of its declared type ({error})", legal)
        return
    if isinstance(value, float) and not math.isfinite(value):
        yield _wrong(path, value, "is not a finite number")
    if isinstance(value, str) and any(ord(character) in _SURROGATES for character in value):
        yield _wrong(path, value, "is not text: it holds bytes that no character has")


def _shape(args: tuple[Any, ...]) -> str:
    return "a tuple" if args[1:] == (Ellipsis,) else f"a tuple of {len(args)}"


def _wrong(path: str, value: object, rule: str, legal: str = "") -> CardError:
    return CardError(
        "FV217", name=path, value=value, rule=rule, legal=legal, remedy="Correct the value in the card."
    )
