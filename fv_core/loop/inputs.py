"""Reads what a loop is given at `init` by type, so that a program that hands over something else is told."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fv_core.cache import ValueRef
from fv_core.loop.contract import Slot


def tensor(inputs: Mapping[str, Slot], name: str) -> Tensor:
    """Raises:
    TypeError: the input is no tensor; what a component wrote is one for the roles in `LoopNode.tensors` alone.
    """
    slot = inputs[name]
    if not isinstance(slot, Tensor):
        raise TypeError(f"{name} is a tensor, got {type(slot).__name__}")
    return slot


def reference(inputs: Mapping[str, Slot], name: str) -> ValueRef:
    """Raises:
    TypeError: the input is no reference: embeddings are stored once, whoever reads them.
    """
    slot = inputs[name]
    if not isinstance(slot, ValueRef):
        raise TypeError(f"{name} is stored once and passed by reference, got {type(slot).__name__}")
    return slot
