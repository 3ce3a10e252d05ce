"""How many rows a product has: measured with the layers themselves, and filled up by repeating the last one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fv_core.loop import ResolvedCall
from fv_core.loop.packing import LeastRows, least_rows, product, size_class
from fv_core.request import Numerics

ROWS = torch.arange(6.0).reshape(3, 2)
CALL = ResolvedCall(rows={}, static={}, caches=())


class Counting(nn.Module):
    """Adds to every row what hangs on their number: that under `border` rows, or the remainder by `stride`."""

    def __init__(self, border: int = 0, stride: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.border, self.stride = border, stride
        self.seen: list[int] = []

    def forward(self, rows: Tensor) -> Tensor:
        self.seen.append(len(rows))
        return rows + (len(rows) < self.border) + len(rows) % self.stride


def test_products_are_filled_up_and_cut_back() -> None:
    layer = Counting()
    assert torch.equal(product(layer, ROWS, 5), ROWS)
    assert torch.equal(product(layer, ROWS, 3), ROWS)
    assert torch.equal(product(layer, ROWS[:0], 4), ROWS[:0])
    assert layer.seen == [5, 3, 0]


@pytest.mark.parametrize(
    ("border", "least"), [(0, 4), (3, 4), (5, 8), (8, 8), (17, 32), (64, 64), (66, None)]
)
def test_the_least_is_where_the_number_stops_to_matter(border: int, least: int | None) -> None:
    assert least_rows([(Counting(border), 2)], ROWS) == least
    assert least_rows([(Counting(), 2), (Counting(border), 2), (Counting(), 3)], ROWS) == least


def test_a_layer_whose_bits_hang_on_the_number_at_any_size_has_no_least() -> None:
    assert least_rows([(Counting(stride=2), 2)], ROWS) is None


def test_only_a_cpu_is_measured() -> None:
    assert least_rows([(Counting(), 2)], ROWS.to("meta")) is None


def test_a_real_layer_is_row_by_row_from_its_least_on() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(32, 64)
    least = least_rows([(layer, 32)], layer.weight)
    assert least is not None
    rows = torch.randn(40, 32)
    whole = layer(rows)
    for count in range(1, 40):
        assert torch.equal(product(layer, rows[:count].clone(), least), whole[:count])


def test_numerics_say_how_many_rows_and_measuring_is_done_once_per_dtype() -> None:
    layer = Counting(5)
    least, exact = LeastRows([(layer, 2)]), replace(CALL, numerics=Numerics.EXACT)
    assert [least.of([CALL]), least.of([replace(CALL, numerics=Numerics.FAST)])] == [1, 1]
    assert not layer.seen
    assert least.of([exact]) == least.exact() == 8
    measured = len(layer.seen)
    assert least.of([exact]) == 8
    assert len(layer.seen) == measured
    layer.double()
    least.exact()
    assert len(layer.seen) > measured


def test_what_cannot_be_measured_runs_as_it_is() -> None:
    least = LeastRows([(Counting(stride=2), 2)])
    assert least.exact() is None
    assert least.of([replace(CALL, numerics=Numerics.EXACT)]) == 1


def test_samples_of_one_class_are_small_or_within_a_factor_of_two() -> None:
    assert {size_class(rows) for rows in (0, 1, 63, 64)} == {6}
    assert [size_class(rows) for rows in (65, 128, 129, 256, 4096, 4097)] == [7, 7, 8, 8, 12, 13]
