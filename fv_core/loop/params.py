"""Reads a loop's typed parameters from a card's plain JSON, refusing what the loop does not declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from fv_core import codec
from fv_core.errors import CardError

P = TypeVar("P")


def read_params(kind: type[P], given: Mapping[str, Any], *, owner: str) -> P:
    """A `kind` with the given fields and its defaults for the rest.

    Raises:
        CardError: FV206, an unknown name or a value of the wrong type.
    """
    hints = codec.field_types(cast(Any, kind))
    for name in given:
        if name not in hints:
            raise CardError(
                "FV206",
                name=f"{owner}: loop parameter",
                value=name,
                rule="is not one that the loop reads",
                legal=", ".join(hints),
                remedy="Correct the name in LoopSpec.params, or remove it.",
            )
    settled = {}
    for name, value in given.items():
        try:
            settled[name] = codec.decode(hints[name], codec.encode(value))
        except codec.DecodeError as error:
            raise CardError(
                "FV206",
                name=f"{owner}: loop parameter {name}",
                value=value,
                rule=str(error),
                remedy="Give a value of the declared type.",
            ) from error
    return kind(**settled)

