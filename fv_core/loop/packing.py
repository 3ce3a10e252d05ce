"""Samples packed into one sequence of rows: each row is computed as if its sample were alone.

A product picks its kernel by its shape, and few rows round in another way than many. From how many rows on their
number stops to matter depends on the machine, its threads and the widths, so that it is measured, with the layers
themselves. Measured on one CPU with one thread: 4 rows suffice for inputs of 32 numbers, 16 for those of 3584.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn

from fv_core.loop.work import ResolvedCall
from fv_core.request import Numerics

Rowwise: TypeAlias = Callable[[Tensor], Tensor]
"""A layer that takes rows [N, ...] each by itself."""

_COUNTS: Final = (4, 8, 16, 32, 64)
_MOST: Final = 257
_ALIKE: Final = 64


def product(layer: Rowwise, rows: Tensor, least: int) -> Tensor:
    """Rows [N, ...] through `layer` as at least `least` of them: the last one repeated, what it gives dropped."""
    missing = least - len(rows)
    if missing <= 0 or not len(rows):
        return layer(rows)
    filled = torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])])
    return layer(filled)[: len(rows)]


def size_class(rows: int) -> int:
    """Samples of one class cost about the same, so that what another one adds to a forward can be told from what they
    took before: all up to 64 rows, of which the layers' overhead is most, then those within a factor of two.
    """
    return max(rows - 1, _ALIKE - 1).bit_length()


class LeastRows:
    """How many rows a component's products have at least: under `exact` what was measured, else one.

    Measured when first asked, and again for another number of threads or another dtype.
    """

    def __init__(self, layers: Sequence[tuple[nn.Module, int]]) -> None:
        self._layers = layers
        self._measured: dict[tuple[int, torch.dtype, torch.device], int | None] = {}

    def exact(self) -> int | None:
        """As `least_rows`; None: under `exact` calls may not share a forward here."""
        weight = next(self._layers[0][0].parameters())
        at = (torch.get_num_threads(), weight.dtype, weight.device)
        if at not in self._measured:
            self._measured[at] = least_rows(self._layers, weight)
        return self._measured[at]

    def share(self, call: ResolvedCall) -> bool:
        """Whether the call may share a forward with others of its numerics."""
        exact = call.numerics is Numerics.EXACT and self.exact() is not None
        return exact or call.numerics is Numerics.FAST

    def of(self, calls: Sequence[ResolvedCall]) -> int:
        """The fewest rows of a product of these calls, all under the same numerics."""
        return (self.exact() or 1) if calls[0].numerics is Numerics.EXACT else 1


@torch.no_grad()
def least_rows(layers: Sequence[tuple[Rowwise, int]], like: Tensor) -> int | None:
    """From how many rows on no row's outputs depend on how many there are and which one it is.

    Args:
        layers: each with the width of its rows. like: of their dtype and on their device.

    Returns:
        One of 4, 8, 16, 32 and 64; None where that is not enough, and on any device but a CPU, whose other kernels
        would have to be measured too.
    """
    if like.device.type != "cpu":
        return None
    least = _COUNTS[0]
    for layer, width in layers:
        probe = torch.randn(_MOST, width, generator=torch.Generator().manual_seed(0)).to(like.dtype)
        whole = layer(probe)
        fitting = [count for count in _COUNTS if count >= least and _settled(layer, probe, whole, count)]
        if not fitting:
            return None
        least = fitting[0]
    return least


def _settled(layer: Rowwise, probe: Tensor, whole: Tensor, least: int) -> bool:
    counts = (*range(least, least + 8), 2 * least + 1, 4 * least - 1, 128, 193)
    starts = ((count, start) for count in counts if count < _MOST for start in (0, 3))
    return all(
        torch.equal(layer(probe[start : start + count].clone()), whole[start : start + count])
        for count, start in starts
        if start + count <= _MOST
    )
