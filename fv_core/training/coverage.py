"""Whether the gradient reaches all that is to be trained, looked at once, at a run's first step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from fv_core.errors import TrainError

_SHOWN = 5


def check_coverage(parameters: Mapping[str, nn.Parameter]) -> None:
    """Raises:
    TrainError: FV703, a parameter has no gradient, or one that is not finite where others are.
    """
    without = [name for name, one in parameters.items() if one.grad is None]
    if without:
        raise _uncovered(without, "gets no gradient")
    broken = [name for name, one in parameters.items() if one.grad is not None and not _finite(one.grad)]
    if broken:
        raise _uncovered(broken, "gets a gradient that is not finite")


def _finite(grad: torch.Tensor) -> bool:
    return bool(torch.isfinite(grad).all())


def _uncovered(names: list[str], rule: str) -> TrainError:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return TrainError(
        "FV703",
        name="parameter",
        value=", ".join(names[:_SHOWN]) + more,
        rule=f"{rule} at the first step",
        remedy="Leave its component out of method.components, or correct what keeps the loss from using it.",
    )
