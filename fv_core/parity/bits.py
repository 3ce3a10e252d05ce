"""Bits: values reduced to what can be compared, so that NaN equals itself and no tensor is kept alive."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import ClassVar, TypeAlias

from torch import Tensor

from fv_core import codec
from fv_core.cache.stores import value_ref
from fv_core.codec import JSON

Bits: TypeAlias = Mapping[str, str]
"""Name to sha256 of shape, type and bytes."""


def bits(tensors: Mapping[str, Tensor]) -> Bits:
    """Equal bits are equal tensors, NaN included."""
    return {name: value_ref(tensor).hash for name, tensor in tensors.items()}


def fingerprint(value: object) -> JSON:
    """Everything in a state, a prediction or a plan: tensors by their bits, foreign objects by identity."""
    return codec.encode(value, _Fingerprints())


def tensors_alive() -> int:
    """How many tensors this process holds."""
    gc.collect()
    return sum(issubclass(type(each), Tensor) for each in gc.get_objects())


class _Fingerprints:
    names: ClassVar[Mapping[str, type]] = {}

    def encode(self, value: object) -> JSON:
        return (
            value_ref(value).hash if isinstance(value, Tensor) else f"{type(value).__name__} at {id(value)}"
        )

    def decode(self, kind: type, stored: JSON) -> object:
        raise codec.DecodeError("a fingerprint cannot be turned back")
