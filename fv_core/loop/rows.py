"""Reads the rows of a call by type: a component says what it takes, and a loop that gives it something else is told."""

from __future__ import annotations

from torch import Tensor

from fv_core.loop.work import ResolvedCall


def tensor(call: ResolvedCall, name: str) -> Tensor:
    """Raises:
    TypeError: the row is no tensor.
    """
    row = call.rows[name]
    if not isinstance(row, Tensor):
        raise TypeError(f"row {name} is a tensor, got {type(row).__name__}")
    return row


def number(call: ResolvedCall, name: str) -> float:
    """A number, or the one in a tensor [].

    Raises:
        TypeError: the row is text.
    """
    row = call.rows[name]
    if isinstance(row, str):
        raise TypeError(f"row {name} is a number, got {row!r}")
    return float(row)


def whole(call: ResolvedCall, name: str) -> int:
    """As `number`.

    Raises:
        TypeError: the row is text, or no whole number.
    """
    value = number(call, name)
    if not value.is_integer():
        raise TypeError(f"row {name} is a whole number, got {value}")
    return int(value)
