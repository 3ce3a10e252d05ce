"""Frame rates: what a clip comes to at another one, to the frame, in any file's idea of time."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fv_core.training.data.resample import count_at, is_even, own_rate, picks

MILLISECOND = Fraction(1, 1000)
RATES = (
    Fraction(8),
    Fraction(12),
    Fraction(16),
    Fraction(24),
    Fraction(25),
    Fraction(30000, 1001),
    Fraction(60),
)


def times_of(frames: int, rate: Fraction, tick: Fraction, start: Fraction = Fraction(0)) -> list[Fraction]:
    """When a file whose clock ticks so shows `frames` frames at `rate`."""
    return [round((start + index / rate) / tick) * tick for index in range(frames)]


rates = st.sampled_from(RATES)
ticks = st.sampled_from([MILLISECOND, Fraction(1, 90000), Fraction(1, 16384)])
starts = st.fractions(0, 2)


@given(frames=st.integers(1, 100), rate=rates, tick=ticks, start=starts)
def test_a_clip_of_the_right_rate_keeps_every_frame(
    frames: int, rate: Fraction, tick: Fraction, start: Fraction
) -> None:
    """Milliseconds, and a first frame at any time: the off-by-one that makes clips too short for their bucket."""
    times = times_of(frames, rate, tick, start)
    assert is_even(times, rate, tick)
    assert count_at(times, rate, tick) == frames
    assert picks(times, rate, frames) == tuple(range(frames))


@pytest.mark.parametrize("rate", RATES)
def test_a_clock_as_slow_as_the_frames_adds_none(rate: Fraction) -> None:
    assert count_at(times_of(9, rate, 1 / rate), rate, 1 / rate) == 9


@given(frames=st.integers(2, 100), rate=rates, wanted=rates, tick=ticks)
def test_the_last_frame_is_the_last_one_that_the_clip_covers(
    frames: int, rate: Fraction, wanted: Fraction, tick: Fraction
) -> None:
    times = times_of(frames, rate, tick)
    count = count_at(times, wanted, tick)
    lasts = (frames - 1) / rate
    assert (count - 1) / wanted <= lasts + 2 * tick
    assert count / wanted > lasts - tick


@given(frames=st.integers(2, 40), rate=rates, wanted=rates, tick=ticks)
def test_each_frame_shows_the_nearest_picture(
    frames: int, rate: Fraction, wanted: Fraction, tick: Fraction
) -> None:
    times = times_of(frames, rate, tick)
    shown = picks(times, wanted, count_at(times, wanted, tick))
    assert list(shown) == sorted(shown)
    for index, picture in enumerate(shown):
        distance = [abs(time - times[0] - index / wanted) for time in times]
        assert picture == distance.index(min(distance))


@given(gaps=st.lists(st.integers(1, 500), min_size=1, max_size=20), wanted=rates)
def test_uneven_times_are_kept_in_time(gaps: list[int], wanted: Fraction) -> None:
    """Variable frame rates: a picture is shown for as long as it was, to half a frame on either side."""
    times = [Fraction(sum(gaps[:index]), 1000) for index in range(len(gaps) + 1)]
    shown = picks(times, wanted, count_at(times, wanted, MILLISECOND))
    for index, picture in enumerate(shown[:-1]):
        nearest = min(abs(time - index / wanted) for time in times)
        assert abs(times[picture] - index / wanted) == nearest
    assert is_even(times, wanted, MILLISECOND) == all(
        abs(time - index / wanted) <= MILLISECOND for index, time in enumerate(times)
    )


@pytest.mark.parametrize(
    ("frames", "rate", "wanted", "count"),
    [
        (121, 24, 16, 81),
        (120, 24, 16, 80),
        (81, 16, 16, 81),
        (152, 30, 16, 81),
        (150, 30, 16, 80),
        (9, 8, 16, 17),
    ],
)
def test_known_counts(frames: int, rate: int, wanted: int, count: int) -> None:
    assert count_at(times_of(frames, Fraction(rate), MILLISECOND), Fraction(wanted), MILLISECOND) == count


def test_the_rate_of_a_clip_is_told_and_an_image_has_none() -> None:
    assert own_rate(times_of(9, Fraction(12), Fraction(1, 90000))) == 12
    assert own_rate([Fraction(0)]) is None
    assert count_at([Fraction(3)], Fraction(16), Fraction(1)) == 1
    assert picks([Fraction(3)], Fraction(16), 1) == (0,)
