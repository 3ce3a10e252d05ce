"""The aligner: two runs tap by tap, and the first place where they part. Strict about absence, shape, type and NaN."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from fv_core.card.certificate import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first difference in a tap.

    Args:
        tap: its name. step: counted from 0 within its node; None for an artifact.
        reason: what differs: "values", "not finite", "shape", "dtype", "missing" or "extra".
        element: index of the first element that differs; None where tensors could not be compared.
        mine, theirs: both values there, or what could not be compared.
        max_abs_diff: the largest absolute difference in the tap; NaN where it has none.
    """

    tap: str
    step: int | None
    reason: str
    element: tuple[int, ...] | None
    mine: str
    theirs: str
    max_abs_diff: float

    def __str__(self) -> str:
        at = "" if self.element is None else f"[{', '.join(map(str, self.element))}]"
        step = "" if self.step is None else f" at step {self.step}"
        size = "" if math.isnan(self.max_abs_diff) else f", largest difference {self.max_abs_diff:.3g}"
        return f"{self.tap}{at}{step}: {self.reason}: {self.mine} here, {self.theirs} there{size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How two runs compare. `first` is the first divergence beyond the tolerance, in the order of the other run."""

    figures: tuple[Figure, ...]
    first: Divergence | None


def align(mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor], tolerance: float = 0.0) -> Alignment:
    """Compares two runs in the order of `theirs`; what only `mine` has comes last.

    Args:
        tolerance: largest absolute difference that is no divergence, >= 0. Not finite numbers always are one.
    """
    first: Divergence | None = None
    sizes: dict[str, list[float]] = {}
    for tap in (*theirs, *(tap for tap in mine if tap not in theirs)):
        size, divergence = _compared(tap, mine.get(tap), theirs.get(tap), tolerance)
        sizes.setdefault(_group(tap), []).append(size)
        first = first or divergence
    return Alignment(figures=tuple(_figures(sizes)), first=first)


def _compared(
    tap: str, mine: Tensor | None, theirs: Tensor | None, tolerance: float
) -> tuple[float, Divergence | None]:
    if mine is None or theirs is None:
        reason, shown = ("extra", ("there", "absent")) if theirs is None else ("missing", ("absent", "there"))
        return math.nan, _divergence(tap, reason, *shown)
    if mine.shape != theirs.shape:
        return math.nan, _divergence(tap, "shape", str(list(mine.shape)), str(list(theirs.shape)))
    if mine.dtype != theirs.dtype:
        return math.nan, _divergence(tap, "dtype", str(mine.dtype), str(theirs.dtype))
    finite = mine.isfinite() & theirs.isfinite()
    difference = (mine.double() - theirs.double()).abs()
    size = float(difference.max()) if mine.numel() else 0.0
    apart = ~finite | (difference > tolerance)
    if not bool(apart.any()):
        return size, None
    element = tuple(cast(list[int], apart.nonzero()[0].tolist()))
    reason = "values" if bool(finite[element]) else "not finite"
    values = (_shown(mine[element]), _shown(theirs[element]))
    return size, _divergence(tap, reason, *values, element=element, size=size)


def _divergence(
    tap: str,
    reason: str,
    mine: str,
    theirs: str,
    *,
    element: tuple[int, ...] | None = None,
    size: float = math.nan,
) -> Divergence:
    numbers = [part for part in tap.split("/") if part.isdigit()]
    return Divergence(
        tap=tap,
        step=int(numbers[0]) if numbers else None,
        reason=reason,
        element=element,
        mine=mine,
        theirs=theirs,
        max_abs_diff=size,
    )


def _figures(sizes: Mapping[str, Iterable[float]]) -> Iterator[Figure]:
    for group, each in sizes.items():
        found = list(each)
        largest = math.nan if any(map(math.isnan, found)) else max(found)
        yield Figure(taps=group, compared=len(found), max_abs_diff=largest)


def _group(tap: str) -> str:
    return "/".join(part for part in tap.split("/") if not part.isdigit())


def _shown(value: Tensor) -> str:
    return repr(value.item()) if value.dtype is not torch.bool else str(bool(value))
