"""The arithmetic of LoRA, peft 0.21.2's: y = base(x) + up(down(x)) * scaling, one adapter after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fv_core.adapters.alpha import Strength

_LEAST_ROWS = 4
"""Products of fewer rows take another kernel on CPUs, so that a row's bits would depend on its neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LowRank:
    """The factors of one layer, on its device and in the dtype of its weight.

    Linear: down [rank, in], up [out, rank]. Convolution: down [rank, in, *kernel], up [out, rank, 1, ...].
    """

    down: Tensor
    up: Tensor
    strength: Strength


Part: TypeAlias = tuple[LowRank, float]
"""Factors, and the scale that a request gives to their adapter."""


@contextmanager
def applied(module: nn.Module, parts: Mapping[str, Sequence[Part]], *, invariant: bool) -> Iterator[None]:
    """Alters the layers named in `parts` for the time of the block; weights are never touched, and nothing stays.

    Args:
        invariant: a row's bits must not depend on the rows beside it.
    """
    with ExitStack() as hooks:
        for name, layer_parts in parts.items():
            hooks.enter_context(_hooked(module.get_submodule(name), layer_parts, invariant))
        yield


@contextmanager
def _hooked(layer: nn.Module, parts: Sequence[Part], invariant: bool) -> Iterator[None]:
    def add(layer: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor:
        x, dtype = args[0], result.dtype
        for factors, scale in parts:
            x = x.to(factors.down.dtype)
            result = result + _product(layer, x, factors, invariant) * factors.strength.scaling(scale)
        return result.to(dtype)

    handle = layer.register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()


def _product(layer: nn.Module, x: Tensor, factors: LowRank, invariant: bool) -> Tensor:
    if isinstance(layer, nn.Linear):
        return _rows(x, factors) if invariant else F.linear(F.linear(x, factors.down), factors.up)
    if invariant and len(x) > 1:  # a convolution may choose its kernel by the number of samples
        return torch.cat([_convolved(layer, one, factors) for one in x.split(1)])
    return _convolved(layer, x, factors)


def _rows(x: Tensor, factors: LowRank) -> Tensor:
    flat = x.reshape(-1, x.shape[-1])
    if (lacking := _LEAST_ROWS - len(flat)) > 0:
        flat = F.pad(flat, (0, 0, 0, lacking))
    product = F.linear(F.linear(flat, factors.down), factors.up)
    return product[: x[..., 0].numel()].view(*x.shape[:-1], -1)


def _convolved(layer: Any, x: Tensor, factors: LowRank) -> Tensor:
    convolve: Any = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[factors.down.ndim]
    low = convolve(x, factors.down, None, layer.stride, layer.padding, layer.dilation)
    product: Tensor = convolve(low, factors.up)
    return product
