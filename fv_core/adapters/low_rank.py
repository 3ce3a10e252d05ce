"""The arithmetic of LoRA, peft 0.21.2's: y = base(x) + up(down(x)) * scaling, one adapter after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fv_core.adapters.alpha import Strength
from fv_core.loop.packing import least_rows, product
from fv_core.loop.rowwise import by_sample, is_rowwise

_SHAPES: Final = 1024


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
        x, total = args[0], result
        for factors, scale in parts:
            x = x.to(factors.down.dtype)
            total = total + _product(layer, x, factors, invariant) * factors.strength.scaling(scale)
        return result.copy_(total)  # in its dtype, and as it lies in memory, which kernels after it look at

    handle = layer.register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()


def _product(layer: nn.Module, x: Tensor, factors: LowRank, invariant: bool) -> Tensor:
    """Where a row must not depend on its neighbours: sample by sample in layers that compute so, else in many rows."""
    if is_rowwise(layer):
        return by_sample(lambda sample: _plain(layer, sample, factors), x)
    if invariant and isinstance(layer, nn.Linear):
        rows, factors = x.reshape(-1, x.shape[-1]), _widened(factors)
        filled = product(lambda many: _plain(layer, many, factors), rows, _least(factors))
        return filled.view(*x.shape[:-1], filled.shape[-1])
    return _plain(layer, x, factors)


def _widened(factors: LowRank) -> LowRank:
    """Of rank 2 at the least: the kernel for one vector adds in an order that no number of rows settles."""
    if len(factors.down) > 1:
        return factors
    return replace(factors, down=F.pad(factors.down, (0, 0, 0, 1)), up=F.pad(factors.up, (0, 1)))


def _least(factors: LowRank) -> int:
    """The fewest rows of a product with these factors; 1 where no number is enough, which sharing finds out."""
    rank, width = factors.down.shape
    shape = (width, rank, len(factors.up))
    return _measured(shape, factors.down.dtype, factors.down.device, torch.get_num_threads()) or 1


@lru_cache(maxsize=_SHAPES)
def _measured(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device, threads: int
) -> int | None:
    """As `least_rows`, with factors of a shape that have no zeros, which would hide how they round."""
    generator = torch.Generator().manual_seed(0)
    down, up = (
        torch.randn(high, wide, generator=generator).to(device, dtype)
        for wide, high in (shape[:2], shape[1:])
    )
    layers = [(partial(F.linear, weight=factor), factor.shape[1]) for factor in (down, up)]
    return least_rows(layers, down)


def _plain(layer: Any, x: Tensor, factors: LowRank) -> Tensor:
    if isinstance(layer, nn.Linear):
        return F.linear(F.linear(x, factors.down), factors.up)
    convolve: Any = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[factors.down.ndim]
    low = convolve(x, factors.down, None, layer.stride, layer.padding, layer.dilation)
    raised: Tensor = convolve(low, factors.up)
    return raised
