"""Whether every value of a card is of its declared type: a dataclass checks nothing when it is made."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from fv_core import codec
from fv_core.card.card import ModelCard
from fv_core.errors import CardError

_JUDGED: Final = ("recipe.steps", "recipe.sigma_rule", "parallelism")
"""What rules of their own say more about."""


def value_types(card: ModelCard) -> Iterator[CardError]:
    """FV217 for each value that could not come back from the card's JSON as it is."""
    yield from _fields(card, "")


def _fields(value: Any, path: str) -> Iterator[CardError]:
    for name, kind in codec.field_types(cast(Any, type(value))).items():
        yield from _value(getattr(value, name), kind, f"{path}{name}")


def _value(value: object, kind: Any, path: str) -> Iterator[CardError]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if path in _JUDGED:
        return
    if _is_declared_dataclass(value, kind):
        yield from _fields(value, f"{path}.")
    elif origin is Mapping and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaf(key, args[0], f"{path}, key")
            yield from _value(item, args[1], f"{path}[{key}]")
    elif origin is tuple and isinstance(value, tuple) and args[1:] == (Ellipsis,):
        for index, item in enumerate(value):
            yield from _value(item, args[0], f"{path}[{index}]")
    else:
        yield from _leaf(value, kind, path)


def _is_declared_dataclass(value: object, kind: Any) -> bool:
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return any(dataclasses.is_dataclass(one) and isinstance(value, cast(type, one)) for one in kinds)


def _leaf(value: object, kind: Any, path: str) -> Iterator[CardError]:
    try:
        codec.decode(kind, codec.encode(value))
    except (codec.DecodeError, TypeError, RecursionError) as error:
        yield _wrong(path, value, str(error))


def _wrong(path: str, value: object, fault: str) -> CardError:
    return CardError(
        "FV217",
        name=path,
        value=value,
        rule=f"is not of its declared type ({fault})",
        remedy="Correct the value in the card.",
    )
