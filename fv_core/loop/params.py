"""Reads typed parameters and checks a loop's roles, refusing what is not declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from fv_core import codec
from fv_core.card import LoopSpec
from fv_core.errors import CardError

P = TypeVar("P")


class Misfit(Exception):
    """What keeps given parameters from being a dataclass of parameters. Whoever gave them is told by the caller.

    Attributes:
        name: of the parameter at fault; "" where they do not go together. value: as given. rule: what it breaks.
    """

    def __init__(self, name: str, value: object, rule: str) -> None:
        self.name = name
        self.value = value
        self.rule = rule
        super().__init__(rule)


def settle(kind: type[P], given: Mapping[str, Any]) -> P:
    """A `kind` with the given fields and its defaults for the rest.

    Raises:
        Misfit: an unknown name, a value of the wrong type, or one that `kind` itself refuses with a ValueError.
    """
    hints = codec.field_types(cast(Any, kind))
    settled = {}
    for name, value in given.items():
        if name not in hints:
            raise Misfit(name, value, "is not one that there is")
        try:
            settled[name] = codec.decode(hints[name], codec.encode(value))
        except (codec.DecodeError, TypeError) as error:
            raise Misfit(name, value, str(error)) from error
    try:
        return kind(**settled)
    except (
        TypeError,
        ValueError,
    ) as error:  # a field without default is not given, or a value is out of range
        raise Misfit("", None, str(error)) from error


def schema(kind: type) -> str:
    """The legal parameters in words, as they are declared: `keep_first: int = 2, damping: float = 0.9`."""
    hints = codec.field_types(cast(Any, kind))
    return ", ".join(_declared(field, hints[field.name]) for field in dataclasses.fields(kind)) or "none"


def read_params(kind: type[P], given: Mapping[str, Any], *, owner: str) -> P:
    """A loop's parameters as its card sets them.

    Raises:
        CardError: FV206, they do not fit; see `settle`.
    """
    try:
        return settle(kind, given)
    except Misfit as misfit:
        raise CardError(
            "FV206",
            name=f"{owner}: loop parameter{f' {misfit.name}' if misfit.name else 's'}",
            value=misfit.value,
            rule=misfit.rule,
            legal=schema(kind),
            remedy="Correct LoopSpec.params.",
        ) from misfit


def _declared(field: dataclasses.Field[Any], hint: Any) -> str:
    told = f"{field.name}: {hint.__name__ if isinstance(hint, type) else hint}"
    return told if field.default is dataclasses.MISSING else f"{told} = {codec.encode(field.default)!r}"


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
