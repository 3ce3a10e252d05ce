"""Weights that sleep: a component's tensors moved to host memory or to a file, and back, bit for bit.

Every storage is stored once and every tensor keeps its place in it, so what was tied or was a view stays so. The live
tensors keep their identity and are emptied: a forward on them fails instead of computing with nothing.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fv_core.errors import FvError, WeightsError
from fv_core.weights.sleep_store import FileStore, HostStore, Store

if TYPE_CHECKING:
    from hashlib import _Hash as Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A live tensor and where its elements lie: strides and offset count elements of storage number `storage`."""

    name: str
    tensor: Tensor
    storage: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def told(self) -> str:
        return f"{self.name} {self.tensor.dtype} {self.shape} {self.stride} {self.offset} {self.storage}\n"


class Asleep:
    """The weights of one component, asleep; made by `put_to_sleep`. They will take `bytes` when they wake."""

    def __init__(
        self,
        component: str,
        places: Sequence[_Place],
        store: Store,
        digest: str,
        *,
        size: int,
        device: torch.device,
    ) -> None:
        self.component = component
        self.bytes = size
        self._places = tuple(places)
        self._store = store
        self._digest = digest
        self._device = device

    def wake(self) -> None:
        """Puts the bytes back, in aligned memory of their own; on any error the component sleeps on.

        Raises:
            WeightsError: FV259, what was stored cannot be read or is not what was put to sleep.
        """
        try:
            stored = self._store.read()
        except (OSError, KeyError, FvError) as error:
            raise _corrupted(self.component, f"cannot be read ({error})") from error
        digest = _begun(self._places)
        for _ in _hashed(stored, digest):
            pass
        if digest.hexdigest() != self._digest:
            raise _corrupted(self.component, "are not those that were put to sleep: their checksum differs")
        storages = [one.to(self._device).untyped_storage() for one in stored]
        for place in self._places:
            filled = torch.empty(0, dtype=place.tensor.dtype, device=self._device)
            place.tensor.data = filled.set_(storages[place.storage], place.offset, place.shape, place.stride)
        self._store.drop()

    def drop(self) -> None:
        """Gives up what is stored."""
        self._store.drop()


def put_to_sleep(module: nn.Module, component: str, file: Path | None) -> Asleep:
    """Stores the tensors of `module` and gives their memory back; on any error the module is as it was.

    Args:
        component: its name, for errors.
        file: where to store them, written whole or not at all; None keeps them in host memory.

    Raises:
        ResourceError: FV403 the disk is full, FV406 the file cannot be written.
    """
    places, storages = _laid_out(module)
    device = storages[0].device if storages else torch.device("cpu")
    digest = _begun(places)
    hosted = _hashed((one.to("cpu", copy=file is None) for one in storages), digest)
    sizes = [one.numel() for one in storages]
    store: Store
    store = (
        HostStore(list(hosted)) if file is None else FileStore(file, component, _names(places), sizes, hosted)
    )
    for place in places:
        place.tensor.data = torch.empty(0, dtype=place.tensor.dtype, device=device)
    return Asleep(component, places, store, digest.hexdigest(), size=sum(sizes), device=device)


def _laid_out(module: nn.Module) -> tuple[list[_Place], list[Tensor]]:
    """Every tensor of the module once, and every storage once, as flat bytes."""
    places: list[_Place] = []
    storages: dict[tuple[int, int], Tensor] = {}
    numbers: dict[tuple[int, int], int] = {}
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        whole = tensor.untyped_storage()
        known = (whole.data_ptr(), whole.nbytes())
        if known not in storages:
            storages[known] = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(whole)
        place = _Place(
            name=name,
            tensor=tensor,
            storage=numbers.setdefault(known, len(numbers)),
            shape=tuple(tensor.shape),
            stride=tensor.stride(),
            offset=int(tensor.storage_offset()),
        )
        places.append(place)
    return places, list(storages.values())


def _names(places: Sequence[_Place]) -> list[str]:
    """A name for each storage: that of the first tensor in it."""
    firsts: dict[int, str] = {}
    for place in places:
        firsts.setdefault(place.storage, place.name)
    return list(firsts.values())


def _begun(places: Sequence[_Place]) -> Digest:
    """A checksum that knows the tensors and takes the bytes of the storages next."""
    return hashlib.sha256("".join(place.told() for place in places).encode())


def _hashed(storages: Iterable[Tensor], digest: Digest) -> Iterator[Tensor]:
    for storage in storages:
        digest.update(storage.numpy().data)
        yield storage


def _corrupted(component: str, rule: str) -> WeightsError:
    return WeightsError(
        "FV259",
        name=component,
        rule=f"its stored weights {rule}",
        remedy="`Engine.unload` it with discard=True: it is then loaded again from where its weights come from.",
    )
