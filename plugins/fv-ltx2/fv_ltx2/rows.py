"""Reads the rows of a call by type: a component says what it takes, and a loop that gives it something else is told."""

from __future__ import annotations

from torch import Tensor

from fv_core.loop import ResolvedCall


def tensor(call: ResolvedCall, name: str) -> Tensor:
    """Raises:
    TypeError: the row is no tensor.
    """
    row = call.rows[name]
    if not isinstance(row, Tensor):
        raise TypeError(f"row {name} is a tensor, got {type(row).__name__}")
    return row


def number(call: ResolvedCall, name: str) -> float:
    """Raises:
    TypeError: the row is no number.
    """
    row = call.rows[name]
    if not isinstance(row, (int, float)):
        raise TypeError(f"row {name} is a number, got {type(row).__name__}")
    return row


def whole(call: ResolvedCall, name: str) -> int:
    """Raises:
    TypeError: the row is no whole number.
    """
    row = call.rows[name]
    if not isinstance(row, int):
        raise TypeError(f"row {name} is a whole number, got {type(row).__name__}")
    return row
