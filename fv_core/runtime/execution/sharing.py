"""Whether sharing a forward left every bit as it is alone: measured, since no component can promise it for a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fv_core.cache import CacheContent
from fv_core.loop import ComponentOutput


def same(shared: Sequence[ComponentOutput], alone: Sequence[ComponentOutput]) -> bool:
    """Whether each output, its texts, notes and caches are equal bit for bit."""
    return len(shared) == len(alone) and all(map(_same, shared, alone))


def _same(one: ComponentOutput, other: ComponentOutput) -> bool:
    tensors, others = one.output.tensors, other.output.tensors
    return (
        tensors.keys() == others.keys()
        and all(same_bits(tensor, others[name]) for name, tensor in tensors.items())
        and (one.output.texts, one.output.notes) == (other.output.texts, other.output.notes)
        and len(one.caches) == len(other.caches)
        and all(map(_same_content, one.caches, other.caches))
    )


def _same_content(one: CacheContent | None, other: CacheContent | None) -> bool:
    if one is None or other is None:
        return one is other
    return len(one) == len(other) and all(map(_same_item, one, other))


def _same_item(one: Tensor | str | None, other: Tensor | str | None) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return same_bits(one, other)
    return type(one) is type(other) and one == other


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether shape, type and every bit are equal: NaN equals the same NaN, and 0 is not -0."""
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
