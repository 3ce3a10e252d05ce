"""Whether tensors of a module were written to or replaced, told by their identity, memory and version counters.

Torch counts every in-place operation on a tensor, under `no_grad` too. What it does not count, nobody sees here: writes
through `.data`, numpy or DLPack, and fused optimizers.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fv_core.weights.footprint import tensors_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """One tensor. It and its storage are held weakly: an address may be given to another one when they are gone."""

    tensor: weakref.ref[Tensor]
    storage: weakref.ref[torch.UntypedStorage]
    layout: tuple[object, ...]
    version: int

    def fits(self, tensor: Tensor) -> bool:
        """Whether it is this very tensor, in the same memory, and has not been written to."""
        return (
            self.tensor() is tensor
            and self.storage() is tensor.untyped_storage()
            and self.layout == _layout(tensor)
            and self.version == _version(tensor)
        )


class Marks:
    """The tensors of a module as they are now."""

    def __init__(self, module: nn.Module) -> None:
        self._marks = {name: _marked(tensor) for name, tensor in tensors_of(module)}

    def changed(self, module: nn.Module) -> tuple[str, ...]:
        """Names of the parameters and buffers of the same module that are not what they were, nor as they were."""
        there = dict(tensors_of(module))
        gone = self._marks.keys() - there.keys()
        kept = {name for name, mark in self._marks.items() if name in there and mark.fits(there[name])}
        return tuple(sorted(gone | (there.keys() - kept)))


def _marked(tensor: Tensor) -> _Mark:
    return _Mark(
        tensor=weakref.ref(tensor),
        storage=weakref.ref(tensor.untyped_storage()),
        layout=_layout(tensor),
        version=_version(tensor),
    )


def _layout(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # which has no counter
