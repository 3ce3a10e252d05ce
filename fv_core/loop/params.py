"""Reads a loop's typed parameters and checks its roles, refusing what the loop does not declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from fv_core import codec
from fv_core.card import LoopSpec
from fv_core.errors import CardError

P = TypeVar("P")


def read_params(kind: type[P], given: Mapping[str, Any], *, owner: str) -> P:
    """A `kind` with the given fields and its defaults for the rest.

    Raises:
        CardError: FV206, an unknown name, a value of the wrong type, or one that `kind` itself refuses with a
            ValueError.
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
    try:
        return kind(**settled)
    except (
        TypeError,
        ValueError,
    ) as error:  # a field without default that is not given, or a value out of range
        raise CardError(
            "FV206",
            name=f"{owner}: loop parameters",
            rule=str(error),
            remedy="Correct them in LoopSpec.params.",
        ) from error


def check_roles(spec: LoopSpec, roles: Sequence[str], *, owner: str) -> None:
    """Raises:
    CardError: FV204, a role is not bound, or something is bound to a role that the loop would ignore.
    """
    for role in sorted({*roles} ^ spec.binds.keys()):
        raise CardError(
            "FV204",
            name=f"{owner}: role",
            value=role,
            rule="is not one that the loop drives as it is set up"
            if role in spec.binds
            else "has no component",
            legal=", ".join(roles),
            remedy="Bind exactly these roles in LoopSpec.binds.",
        )
