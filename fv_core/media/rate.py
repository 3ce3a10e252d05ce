"""Frame rates as fractions: what containers store, and whole delays whose sum never drifts."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from fv_core.errors import RequestError

_INT32 = 2**31 - 1  # containers and codecs keep both parts of a rate in 32 bits


def exact_rate(fps: float) -> Fraction:
    """The simplest fraction that *is* `fps`: 16 gives 16/1, 23.976 gives 2997/125, 30000/1001 gives itself.

    "Is" means that the fraction, as a float, equals `fps` bit for bit.

    Raises:
        RequestError: `fps` is not finite, not positive, or no fraction of 32-bit whole numbers (FV307).
    """
    if math.isfinite(fps) and fps > 0:
        for exponent in range(3, 10):
            rate = Fraction(fps).limit_denominator(10**exponent)
            if float(rate) == fps and rate.numerator <= _INT32:
                return rate
    raise RequestError(
        "FV307",
        name="fps",
        value=fps,
        rule="has no exact frame rate",
        legal="a finite number greater than 0 that is a fraction of whole numbers below 2^31",
        remedy="Give a common rate such as 16, 23.976 or 30000/1001.",
    )


def delays(frames: int, rate: Fraction, per_second: int) -> list[int]:
    """How long each frame shows, in units of 1/`per_second` s, one item per frame.

    Each frame ends at the unit nearest to its exact end, so delays differ by at most one unit and their sum is
    exact to half a unit, however long the clip.
    """
    ends = [round(index * per_second / rate) for index in range(frames + 1)]
    return [end - start for start, end in itertools.pairwise(ends)]
