"""Why an adapter is refused, in three codes."""

from __future__ import annotations

from collections.abc import Sequence

from fv_core.errors import RequestError

_SHOWN = 5


def unreadable(
    path: object, rule: str, remedy: str = "Give a whole safetensors file of a LoRA."
) -> RequestError:
    """FV322: the file is absent, changed, damaged, or holds something else than a LoRA that fv reads."""
    return RequestError("FV322", name="adapter", value=str(path), rule=rule, remedy=remedy)


def unbound(path: object, rule: str, remedy: str) -> RequestError:
    """FV323: the file's layers are not those of the model."""
    return RequestError("FV323", name="adapter", value=str(path), rule=rule, remedy=remedy)


def illegal(name: str, value: object, rule: str, legal: str, remedy: str) -> RequestError:
    """FV324: what the request says of its adapters."""
    return RequestError("FV324", name=name, value=value, rule=rule, legal=legal, remedy=remedy)


def listed(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    first = ", ".join(names[:_SHOWN])
    return first if len(names) <= _SHOWN else f"{first} and {len(names) - _SHOWN} more"
