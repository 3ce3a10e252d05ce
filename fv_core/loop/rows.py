"""Reads the rows of a call by type: a component says what it takes, and a loop that gives it something else is told.

And the way of single samples into a batch and out of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
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


def form(call: ResolvedCall, name: str) -> Hashable:
    """Shape and dtype of a tensor, which must be equal for `stacked`.

    Raises:
        TypeError: the row is no tensor.
    """
    row = tensor(call, name)
    return (tuple(row.shape), row.dtype)


def stacked(calls: Sequence[ResolvedCall], name: str) -> Tensor:
    """The tensors of all calls, one sample each, [calls, ...].

    Raises:
        TypeError: a row is no tensor.
    """
    return torch.stack([tensor(call, name) for call in calls])


def unstacked(batch: Tensor) -> list[Tensor]:
    """The samples of a batch, each in memory of its own: a view would keep the whole batch alive with one of them."""
    return [batch[0]] if len(batch) == 1 else [row.clone() for row in batch]
