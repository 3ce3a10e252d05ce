"""Where values live: immutable tensors by content hash, counted to the byte."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

import torch
from torch import Tensor

from fv_core.cache.ref import ValueRef
from fv_core.errors import RunError


def value_ref(tensor: Tensor) -> ValueRef:
    """The reference of a tensor: sha256 of its contiguous bytes, with shape and dtype."""
    digest = hashlib.sha256(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return ValueRef(hash=digest.hexdigest())


class ValueStore:
    """Immutable tensors, stored once however many requests hold them."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._holders: dict[str, set[Hashable]] = {}

    def put(self, tensor: Tensor, owner: Hashable) -> ValueRef:
        """Stores `tensor` for `owner`; an equal tensor that is already here is shared."""
        ref = value_ref(tensor)
        self._tensors.setdefault(ref.hash, tensor)
        self._holders.setdefault(ref.hash, set()).add(owner)
        return ref

    def get(self, ref: ValueRef) -> Tensor:
        """Raises:
        RunError: FV505, nobody holds the value any more.
        """
        if ref.hash not in self._tensors:
            raise stale(f"value {ref.hash[:12]}", None)
        return self._tensors[ref.hash]

    def release(self, ref: ValueRef, owner: Hashable) -> None:
        """`owner` lets go; the last one to do so frees the tensor."""
        holders = self._holders.get(ref.hash, set())
        holders.discard(owner)
        if not holders:
            self._holders.pop(ref.hash, None)
            self._tensors.pop(ref.hash, None)

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in tuple(self._tensors.values()))


def stale(name: str, value: object, rule: str = "is no longer held") -> RunError:
    """FV505: a reference that names nothing of its user's."""
    return RunError(
        "FV505",
        name=name,
        value=value,
        rule=rule,
        remedy="Keep the reference that the last step returned; a released one cannot be read again.",
    )
