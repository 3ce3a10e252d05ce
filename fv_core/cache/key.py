"""What names the result of a call: everything that can change it. Results are shared by key.

Guidance, seed, sampler and step are no fields: a call never sees them other than through its rows (`inputs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from fv_core import codec
from fv_core.cache.ref import ValueRef

CONTRACT: Final = 1
"""Raised when what a key means, or what is stored under one, changes."""

Stated: TypeAlias = tuple[tuple[str, str], ...]
"""Names with values as `stated` writes them, sorted by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """One result of one call.

    Args:
        model: digest of the card, which holds architecture, layout and recipe.
        component, op: what was called.
        weights: fingerprint of the weights as they were loaded. version: how often they have changed since.
        adapters: those on the component, in order, with their scales.
        precision: as torch names it. device: with its index.
        environment: hash of the numeric environment: threads, libraries, instruction set.
        numerics: "reference", "exact" or "fast".
        static: the call's static values. inputs: its rows.
        previous: of each cache that the call uses the digest of the key that its content has, "" for an empty one.
            A prefix is thus shared only by calls that built it op by op on the same grid of chunks.
        part: "output", or "cache 0" for what the call appended to the first cache it uses.
        contract: see `CONTRACT`.
    """

    model: str
    component: str
    op: str
    weights: str
    version: int
    adapters: tuple[str, ...]
    precision: str
    device: str
    environment: str
    numerics: str
    static: Stated
    inputs: Stated
    previous: tuple[str, ...]
    part: str
    contract: int = CONTRACT

    def digest(self) -> str:
        """sha256 in hex, the same in every process: equal digests are equal keys."""
        return codec.digest(self)


def stated(values: Mapping[str, str | int | float | bool | ValueRef]) -> Stated:
    """Values by name as text that keeps type and bits apart: 1, 1.0 and True differ, and so do 0.0 and -0.0.

    NaN equals itself.
    """
    return tuple((name, _text(values[name])) for name in sorted(values))


def _text(value: str | int | float | bool | ValueRef) -> str:
    if isinstance(value, ValueRef):
        return f"tensor {value.hash}"
    return f"{type(value).__name__} {value.hex() if isinstance(value, float) else value}"
