"""Random streams as values: a generator's state goes in, numbers and the next state come out."""

from __future__ import annotations

import torch
from torch import Tensor


def seed_state(seed: int) -> Tensor:
    """The state of `torch.Generator("cpu").manual_seed(seed)` as uint8; 0 <= seed < 2^64."""
    return torch.Generator("cpu").manual_seed(seed).get_state()


def torch_normal(
    state: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Normal numbers on the CPU, equal to `torch.randn(shape, generator=g, dtype=dtype)`, and g's next state."""
    generator = torch.Generator("cpu")
    generator.set_state(state)
    numbers = torch.randn(shape, generator=generator, dtype=dtype)
    return numbers, generator.get_state()


def torch_uniform(state: Tensor) -> tuple[float, Tensor]:
    """A uniform number in [0, 1), equal to `torch.rand((), generator=g, dtype=torch.float64)`, and g's next state."""
    generator = torch.Generator("cpu")
    generator.set_state(state)
    number = torch.rand((), generator=generator, dtype=torch.float64)
    return float(number), generator.get_state()
