"""The aligner: the first divergence with tap, step, element and both values; strict about NaN, type and shape."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fv_core.parity.aligner import align

TAPS = {
    "denoise/0/cond/velocity": torch.arange(6.0).reshape(2, 3),
    "denoise/1/cond/velocity": torch.ones(2, 3),
    "video": torch.zeros(4),
}


def changed(tap: str, change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    return {name: change(tensor.clone()) if name == tap else tensor for name, tensor in TAPS.items()}


def put(value: float, *element: int) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        tensor[element] = value
        return tensor

    return change


def test_equal_runs_do_not_part() -> None:
    found = align(TAPS, {name: tensor.clone() for name, tensor in TAPS.items()})
    assert found.first is None
    assert [(one.taps, one.compared, one.max_abs_diff) for one in found.figures] == [
        ("denoise/cond/velocity", 2, 0.0),
        ("video", 1, 0.0),
    ]


def test_a_single_bit_is_told_with_its_place_and_both_values() -> None:
    nudged = float(torch.nextafter(torch.tensor(1.0), torch.tensor(2.0)))
    first = align(changed("denoise/1/cond/velocity", put(nudged, 1, 2)), TAPS).first
    assert first is not None
    assert (first.tap, first.step, first.reason, first.element) == (
        "denoise/1/cond/velocity",
        1,
        "values",
        (1, 2),
    )
    assert (first.mine, first.theirs) == (repr(nudged), "1.0")
    assert first.max_abs_diff == nudged - 1.0
    assert "denoise/1/cond/velocity[1, 2] at step 1: values: " in str(first)


def test_the_first_element_is_told_and_the_largest_difference_of_all() -> None:
    mine = changed("denoise/0/cond/velocity", lambda tensor: put(9.0, 1, 1)(put(2.5, 0, 2)(tensor)))
    first = align(mine, TAPS).first
    assert first is not None
    assert (first.element, first.mine, first.theirs, first.max_abs_diff) == ((0, 2), "2.5", "2.0", 5.0)


def test_the_first_tap_is_told_in_the_order_of_the_other_run() -> None:
    mine = {name: tensor + 1 for name, tensor in reversed(TAPS.items())}
    first = align(mine, TAPS).first
    assert first is not None
    assert first.tap == "denoise/0/cond/velocity"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sides", ["mine", "theirs", "both"])
def test_what_is_not_finite_always_parts(value: float, sides: str) -> None:
    spoilt = changed("video", put(value, 2))
    mine, theirs = (TAPS if sides == "theirs" else spoilt), (TAPS if sides == "mine" else spoilt)
    found = align(mine, theirs, tolerance=math.inf)
    assert found.first is not None
    assert (found.first.tap, found.first.reason, found.first.element) == ("video", "not finite", (2,))
    assert not found.figures[-1].max_abs_diff <= 1e30


@pytest.mark.parametrize(
    ("change", "reason", "shown"),
    [
        (lambda tensor: tensor.double(), "dtype", ("torch.float64", "torch.float32")),
        (lambda tensor: tensor.to(torch.bfloat16), "dtype", ("torch.bfloat16", "torch.float32")),
        (lambda tensor: tensor.reshape(2, 2), "shape", ("[2, 2]", "[4]")),
        (lambda tensor: tensor[:3], "shape", ("[3]", "[4]")),
    ],
)
def test_another_type_or_shape_parts_even_where_the_values_are_equal(
    change: Callable[[Tensor], Tensor], reason: str, shown: tuple[str, str]
) -> None:
    found = align(changed("video", change), TAPS, tolerance=1.0)
    assert found.first is not None
    assert (found.first.tap, found.first.step, found.first.reason) == ("video", None, reason)
    assert (found.first.mine, found.first.theirs) == shown
    assert math.isnan(found.figures[-1].max_abs_diff)


def test_missing_and_extra_taps_part() -> None:
    fewer = {name: tensor for name, tensor in TAPS.items() if name != "denoise/1/cond/velocity"}
    missing, extra = align(fewer, TAPS), align(TAPS, fewer)
    assert missing.first is not None and extra.first is not None
    assert (missing.first.tap, missing.first.reason) == ("denoise/1/cond/velocity", "missing")
    assert (extra.first.tap, extra.first.reason) == ("denoise/1/cond/velocity", "extra")
    assert math.isnan(missing.figures[0].max_abs_diff)
    assert align({}, {}).figures == ()


def test_tolerance_lets_differences_up_to_it_pass_and_figures_tell_them() -> None:
    mine = changed("video", put(0.5, 1))
    within, beyond = align(mine, TAPS, tolerance=0.5), align(mine, TAPS, tolerance=0.49)
    assert within.first is None
    assert within.figures[-1].max_abs_diff == 0.5
    assert beyond.first is not None


def test_whole_numbers_truths_and_empty_tensors_are_compared() -> None:
    numbers, truths = torch.tensor([1, 2]), torch.tensor([True, False])
    assert align({"n": numbers, "e": torch.zeros(0)}, {"n": numbers, "e": torch.zeros(0)}).first is None
    assert align({"n": numbers}, {"n": numbers + 1}).first is not None
    first = align({"t": truths}, {"t": ~truths}).first
    assert first is not None
    assert (first.mine, first.theirs) == ("True", "False")
