"""Switches in the environment: one reading of yes and no for all of them, the one that options have."""

from __future__ import annotations

import os
from typing import Final

from fv_core.errors import RequestError

_ON: Final = ("1", "true", "yes", "on", "t", "y")
_OFF: Final = ("0", "false", "no", "off", "f", "n", "")


def is_on(name: str) -> bool:
    """Whether the variable `name` is switched on; unset and empty are off.

    Raises:
        RequestError: FV316, its value is neither yes nor no.
    """
    value = os.environ.get(name, "")
    word = value.strip().lower()
    if word in _ON or word in _OFF:
        return word in _ON
    raise RequestError(
        "FV316",
        name=name,
        value=value,
        rule="is neither yes nor no",
        legal="1, true, yes, on; 0, false, no, off",
        remedy="Correct it, or unset it.",
    )
