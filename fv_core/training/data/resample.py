"""A clip at another frame rate: which of its pictures are shown, by the times that the file gives them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction


def count_at(times: Sequence[Fraction], rate: Fraction, tick: Fraction) -> int:
    """How many frames at `rate` pictures shown at `times` come to: the last one is not shown after the last picture.

    Args:
        times: in seconds, rising.
        rate: frames per second.
        tick: what times are rounded to. A frame that is late by no more counts: in files that tell time in milliseconds
            a clip would else lose its last frame to rounding.
    """
    return int((times[-1] - times[0] + _tolerance(rate, tick)) * rate) + 1 if len(times) > 1 else 1


def picks(times: Sequence[Fraction], rate: Fraction, count: int) -> tuple[int, ...]:
    """For each of `count` frames at `rate` from the first picture on, the picture that is nearest in time.

    The earlier one of two that are equally near.
    """
    wanted = (times[0] + index / rate for index in range(count))
    return tuple(_nearest(times, time) for time in wanted)


def own_rate(times: Sequence[Fraction]) -> Fraction | None:
    """The mean rate of the pictures; None for a single one."""
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else None


def is_even(times: Sequence[Fraction], rate: Fraction, tick: Fraction) -> bool:
    """Whether the pictures come at `rate` already, as far as rounded times can tell."""
    return all(
        abs(time - times[0] - index / rate) <= _tolerance(rate, tick) for index, time in enumerate(times)
    )


def _nearest(times: Sequence[Fraction], time: Fraction) -> int:
    after = bisect_left(times, time)
    if after == 0 or after == len(times):
        return min(after, len(times) - 1)
    return after if times[after] - time < time - times[after - 1] else after - 1


def _tolerance(rate: Fraction, tick: Fraction) -> Fraction:
    """By how much rounded times may be off, but never so much that a frame more or less fits."""
    return min(tick, 1 / (2 * rate))
