"""Products with factors of a low rank: a row's bits are its own, whoever is beside it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fv_core.adapters import low_rank
from fv_core.adapters.alpha import Strength
from fv_core.adapters.low_rank import LowRank, applied

ROWS = torch.randn(40, 64, generator=torch.Generator().manual_seed(1))


def altered(rank: int) -> tuple[nn.Module, LowRank]:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(rank)
    layer = nn.Linear(64, 32)
    nn.init.zeros_(layer.weight)  # the adapter's product alone
    nn.init.zeros_(layer.bias)
    down, up = torch.randn(rank, 64, generator=generator), torch.randn(32, rank, generator=generator)
    return nn.Sequential(layer), LowRank(down=down, up=up, strength=Strength(alpha=rank, rank=rank))


def through(module: nn.Module, factors: LowRank, rows: Tensor, *, invariant: bool = True) -> Tensor:
    with torch.no_grad(), applied(module, {"0": [(factors, 0.5)]}, invariant=invariant):
        result: Tensor = module(rows.clone())
    return result


def differing(rank: int) -> list[int]:
    """Numbers of rows among which a row comes to other bits than among all."""
    module, factors = altered(rank)
    whole = through(module, factors, ROWS)
    return [
        count
        for count in range(1, len(ROWS))
        if not torch.equal(through(module, factors, ROWS[:count]), whole[:count])
    ]


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 16])
def test_a_row_has_the_bits_that_it_has_alone(rank: int) -> None:
    assert differing(rank) == []


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_four_rows_are_too_few_for_a_low_rank(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control, and why the number is measured."""
    monkeypatch.setattr(low_rank, "_least", lambda factors: 4)
    assert differing(rank)


def test_one_vector_is_settled_by_no_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_rank, "_widened", lambda factors: factors)
    assert differing(1)


@pytest.mark.parametrize("shape", [(64,), (3, 64), (2, 5, 64), (0, 64)])
def test_rows_of_any_shape_keep_it(shape: tuple[int, ...]) -> None:
    module, factors = altered(2)
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    expected = (rows @ factors.down.T @ factors.up.T) * 0.5
    assert torch.allclose(through(module, factors, rows), expected, atol=1e-5)
    plain = through(module, factors, rows, invariant=False)
    assert plain.shape == expected.shape and torch.allclose(plain, expected, atol=1e-5)
