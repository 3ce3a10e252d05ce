"""Weights made from a seed, for cards that ship none: deterministic, complete, and apart from all global state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from fv_core.errors import WeightsError
from fv_core.weights.layout import named
from fv_core.weights.own_draws import OwnDraws
from fv_core.weights.strict_load import Settle

M = TypeVar("M", bound=nn.Module)


def fill_from_seed(module: M, seed: int, initialise: Callable[[M], None] | None, settle: Settle) -> None:
    """Gives every parameter on the meta device a value drawn in its own dtype on the CPU, then `settle`s it.

    Args:
        seed: 0 to 2^64 - 1.
        initialise: fills the parameters; None runs `reset_parameters` of every submodule that has one.
        settle: from a parameter's name and value to the tensor to keep.

    Raises:
        WeightsError: FV254 a parameter got no value, FV257 a draw that cannot be made the seed's.
    """
    replace_parameters(module, _blank)
    with OwnDraws(seed), torch.no_grad():
        (initialise or _reset)(module)
    if bare := [name for name, value in module.named_parameters() if value.isnan().any()]:
        raise WeightsError(
            "FV254",
            name=f"weights of {type(module).__name__}",
            rule=f"{len(bare)} parameters got no value from the seed: {named(bare)}",
            remedy="The component's factory must fill them in the `initialise` it passes.",
        )
    replace_parameters(module, settle)


def replace_parameters(module: M, change: Settle) -> M:
    """Puts what `change` makes of its first name and value in the place of each parameter; tied ones stay tied."""
    names = _names(module)
    while names:
        old, tied = names.popitem()  # popped, so that no more than one is held twice
        new = nn.Parameter(change(tied[0], old.detach()), requires_grad=False)
        for name in tied:
            owner, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(owner), leaf, new)
    return module


def _blank(name: str, value: torch.Tensor) -> torch.Tensor:
    return torch.full_like(value, torch.nan, device="cpu") if value.is_meta else value


def _reset(module: nn.Module) -> None:
    for part in module.modules():
        if callable(reset := getattr(part, "reset_parameters", None)):
            reset()


def _names(module: nn.Module) -> dict[nn.Parameter, list[str]]:
    """All names of each parameter: tied ones stay one object."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return names
