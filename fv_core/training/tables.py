"""Tables of a TOML file as frozen dataclasses: what is not declared is refused, with what it may have been."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from fv_core.errors import TrainError
from fv_core.loop.params import Misfit, schema, settle

T = TypeVar("T")


def read_table(kind: type[T], given: Mapping[str, Any], *, name: str) -> T:
    """A `kind` with the given keys and its defaults for the rest.

    Args:
        name: of the table, as `train`.

    Raises:
        TrainError: FV701, an unknown key, a value of another type, or one that `kind` itself refuses.
    """
    try:
        return settle(kind, given)
    except Misfit as misfit:
        told = f"{name}.{misfit.name}" if misfit.name else f"[{name}]"
        keys = [field.name for field in dataclasses.fields(cast(Any, kind))]
        unknown = misfit.name and misfit.name not in keys
        rule = f"is no key{meant(misfit.name, keys)}" if unknown else misfit.rule
        raise illegal(told, misfit.value, rule, legal=schema(kind)) from misfit


def illegal(name: str, value: object, rule: str, *, legal: str = "") -> TrainError:
    """FV701."""
    return TrainError(
        "FV701",
        name=name,
        value=value,
        rule=rule,
        legal=legal,
        remedy="Correct it in the file or the override.",
    )


def meant(word: str, known: Iterable[str]) -> str:
    """`; did you mean A?`, or "" where nothing looks alike."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
