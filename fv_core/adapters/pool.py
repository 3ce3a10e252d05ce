"""The adapters that an engine holds: loaded when first needed, shared by requests, the least recently used dropped."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from fv_core.adapters.binding import Binding, BoundLayer
from fv_core.adapters.faults import unreadable
from fv_core.adapters.low_rank import LowRank
from fv_core.errors import ResourceError

Factors: TypeAlias = Mapping[str, LowRank]
"""By name of a component's layer."""


@dataclass(frozen=True, slots=True)
class PoolKey:
    """Whose factors: a component of a model, and the adapter's sha256."""

    model: str
    component: str
    sha256: str


class AdapterPool:
    """Never holds more than `limit` bytes. What a forward works with is its own until it is done."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: OrderedDict[PoolKey, Factors] = OrderedDict()

    @property
    def bytes(self) -> int:
        return sum(map(_bytes, tuple(self._held.values())))

    def __len__(self) -> int:
        return len(self._held)

    def check(self, path: str, needed: int) -> None:
        """Raises:
        ResourceError: FV401, so many bytes can never be held.
        """
        if needed > self.limit:
            raise ResourceError(
                "FV401",
                name="adapter",
                value=path,
                rule=f"needs {needed} bytes with those before it, more than the engine keeps for adapters",
                legal=f"at most {self.limit} bytes",
                remedy="Raise Engine(adapter_bytes=...), or use an adapter of a lower rank.",
            )

    def get(self, key: PoolKey, binding: Binding, module: nn.Module) -> Factors:
        """The factors of one component, on its device and in its dtypes.

        Raises:
            RequestError: FV322, the file has changed or is gone.
            ResourceError: FV401, they alone are more than may be held.
        """
        if key not in self._held:
            factors = _loaded(key, binding, module)
            self.check(binding.file.path, needed := _bytes(factors))
            while self.bytes + needed > self.limit:
                self._held.popitem(last=False)
            self._held[key] = factors
        self._held.move_to_end(key)
        return self._held[key]

    def drop(self, model: str, components: Sequence[str] = ()) -> None:
        """Gives back the factors of a model, or of some of its components; they are loaded anew when needed."""
        for key in list(self._held):
            if key.model == model and (not components or key.component in components):
                del self._held[key]

    def evict(self, wanted: int, needed: Container[object] = ()) -> None:
        """Gives back the least recently used that are not needed until `wanted` bytes are freed or none is left."""
        most = self.bytes - wanted
        for key in [key for key in self._held if key not in needed]:
            if self.bytes > most:
                del self._held[key]

    def sizes(self) -> dict[PoolKey, int]:
        """Bytes of all that it holds."""
        return {key: _bytes(factors) for key, factors in self._held.items()}

    def clear(self) -> None:
        self._held.clear()


def _loaded(key: PoolKey, binding: Binding, module: nn.Module) -> Factors:
    tensors = _tensors(key.sha256, binding)
    bound = [layer for layer in binding.layers if layer.component == key.component]
    path = binding.file.path
    return {layer.layer: _factors(path, layer, tensors, module.get_submodule(layer.layer)) for layer in bound}


def _tensors(sha256: str, binding: Binding) -> dict[str, Tensor]:
    """The tensors of the very bytes that were bound."""
    file = binding.file
    try:
        if file.sha256() != sha256:
            raise unreadable(
                file.path, "has changed since the request was taken on", "Make the request anew."
            )
        data = file.tensors.read_bytes()
        tensors = load(data)
    except (OSError, SafetensorError) as error:
        raise unreadable(file.path, f"cannot be read: {error}") from error
    if file.config is None and hashlib.sha256(data).hexdigest() != sha256:
        raise unreadable(file.path, "changes while it is read", "Make the request anew.")
    return tensors


def _factors(path: str, layer: BoundLayer, tensors: Mapping[str, Tensor], module: nn.Module) -> LowRank:
    weight = module.weight
    assert isinstance(weight, Tensor)

    def placed(name: str) -> Tensor:  # a copy of its own: aligned, and not a view of the whole file
        factor = tensors[name].to(weight.device, weight.dtype, copy=True)
        if (
            not factor.isfinite().all()
        ):  # attention may swallow it, and the clip would be wrong without a word
            raise unreadable(path, f"has NaN or infinite values in {name}, as {weight.dtype}")
        return factor

    return LowRank(down=placed(layer.keys.down), up=placed(layer.keys.up), strength=layer.strength)


def _bytes(factors: Factors) -> int:
    tensors: Iterable[torch.Tensor] = (one for each in factors.values() for one in (each.down, each.up))
    return sum(one.nbytes for one in tensors)
