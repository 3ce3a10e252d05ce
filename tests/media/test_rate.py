"""Rates are kept exactly, and whole delays never drift from them."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fv_core.errors import RequestError
from fv_core.media import exact_rate
from fv_core.media.rate import delays


@pytest.mark.parametrize(
    ("fps", "rate"),
    [
        (16, Fraction(16)),
        (16.0, Fraction(16)),
        (23.976, Fraction(2997, 125)),
        (24000 / 1001, Fraction(24000, 1001)),
        (30000 / 1001, Fraction(30000, 1001)),
        (29.97, Fraction(2997, 100)),
        (12.5, Fraction(25, 2)),
        (0.1, Fraction(1, 10)),
        (1 / 3, Fraction(1, 3)),
    ],
)
def test_exact_rate_is_the_fraction_that_was_meant(fps: float, rate: Fraction) -> None:
    assert exact_rate(fps) == rate


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_exact_rate_finds_every_common_fraction(numerator: int, denominator: int) -> None:
    assert exact_rate(numerator / denominator) == Fraction(numerator, denominator)


def test_exact_rate_of_an_irrational_number_equals_it_as_a_float() -> None:
    assert float(exact_rate(math.pi)) == math.pi


@pytest.mark.parametrize("fps", [0.0, -16.0, math.nan, math.inf, -math.inf, 1e-12, 1e12, 24.000000001])
def test_exact_rate_refuses_what_no_container_can_keep(fps: float) -> None:
    with pytest.raises(RequestError) as caught:
        exact_rate(fps)
    assert caught.value.code == "FV307"


@given(st.integers(1, 400), st.fractions(min_value="1/5", max_value=50, max_denominator=1001))
def test_delays_end_every_frame_at_the_nearest_unit(frames: int, rate: Fraction) -> None:
    shown = delays(frames, rate, 100)
    assert len(shown) == frames
    for index in range(frames + 1):
        assert abs(sum(shown[:index]) - index * 100 / rate) <= Fraction(1, 2)
    assert max(shown) - min(shown) <= 1
    assert min(shown) >= 2
