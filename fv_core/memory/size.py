"""Sizes of memory in words: how people give them and how they are told."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from fv_core.errors import RequestError

_SCALES: Final = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_UNITS: Final = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def parse_bytes(given: int | str) -> int:
    """`8GiB`, `512 MiB` or a whole number of bytes, as bytes.

    Raises:
        RequestError: FV312, it is none of these, or less than 1 byte.
    """
    form = re.fullmatch(
        r"(\d{1,19}(?:\.\d{1,19})?) ?([KMGT]iB|B)?", str(given).strip(), re.IGNORECASE | re.ASCII
    )
    size = Fraction(form[1]) * _SCALES[(form[2] or "B").upper()] if form is not None else Fraction(0)
    if size < 1 or size.denominator != 1:
        raise _illegal(given)
    return int(size)


def shown(count: int) -> str:
    """`count` bytes, exactly and, from 1 KiB up, for people too: `5368709120 bytes (5.0 GiB)`."""
    for unit, scale in _UNITS:
        if count >= scale:
            return f"{count} bytes ({count / scale:.1f} {unit})"
    return f"{count} bytes"


def _illegal(given: object) -> RequestError:
    return RequestError(
        "FV312",
        name="memory",
        value=given,
        rule="is not a size of memory",
        legal="a whole number of bytes from 1 up, with or without a unit: B, KiB, MiB, GiB, TiB",
        remedy="Write it like 8GiB, or leave it out for what the device has free.",
    )
