"""The arithmetic of LoRA, peft 0.21.2's: y = base(x) + up(down(x)) * scaling, one adapter after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.nn import functional as F

from fv_core.adapters.alpha import Strength
from fv_core.loop.rowwise import by_sample, is_rowwise

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
    few = _LEAST_ROWS - x[..., 0].numel()
    if invariant and few > 0 and isinstance(layer, nn.Linear):
        return _padded(layer, x, factors, few)
    return _plain(layer, x, factors)


def _plain(layer: Any, x: Tensor, factors: LowRank) -> Tensor:
    if isinstance(layer, nn.Linear):
        return F.linear(F.linear(x, factors.down), factors.up)
    convolve: Any = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[factors.down.ndim]
    low = convolve(x, factors.down, None, layer.stride, layer.padding, layer.dilation)
    product: Tensor = convolve(low, factors.up)
    return product


def _padded(layer: nn.Module, x: Tensor, factors: LowRank, lacking: int) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    product = _plain(layer, F.pad(rows, (0, 0, 0, lacking)), factors)
    return product[: len(rows)].view(*x.shape[:-1], -1)
