"""What memory the tensors of a module lie in: how much it is, and whether it is another module's too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch import Tensor, nn


def tensors_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers, those that are tied under each of their names."""
    return itertools.chain(
        module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
    )


def bytes_of(module: nn.Module) -> int:
    """Bytes of its tensors, on the meta device too; memory that several of them lie in counts once."""
    storages: dict[tuple[int, int], int] = {}
    for _, tensor in tensors_of(module):
        storage = tensor.untyped_storage()
        # On the meta device every address is 0. Two storages may begin at one, and the larger one holds both.
        address = storage.data_ptr()
        place = (address, 0 if address else storage._cdata)
        storages[place] = max(storage.nbytes(), storages.get(place, 0))
    return sum(storages.values())


def share_memory(one: nn.Module, other: nn.Module) -> bool:
    """Whether a tensor, or memory that tensors lie in, is of both modules."""
    return not _identities(one).isdisjoint(_identities(other))


def _identities(module: nn.Module) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for _, tensor in tensors_of(module):
        found.add(("tensor", id(tensor)))
        if address := tensor.untyped_storage().data_ptr():
            found.add(("memory", address))
    return found
