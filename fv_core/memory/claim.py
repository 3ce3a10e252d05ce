"""What is claimed of a device's memory: bytes for a purpose, of one owner or of a thing that several share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum


class Tag(StrEnum):
    """What memory is for.

    weights: parameters and buffers of components. activations: what a request needs beside them at its peak, its
    caches and what it hands over included, since the formulas of the cards predict them in one figure. caches: of a
    device, results that no request holds any more, kept for those to come; of a pool, what a request's caches take.
    """

    WEIGHTS = "weights"
    ACTIVATIONS = "activations"
    CACHES = "caches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Bytes, 0 or more, for one purpose.

    Args:
        key: the thing that is claimed, where several owners may claim it: it counts once, at the largest of their
            claims. None: the owner's alone.
    """

    tag: Tag
    bytes: int
    key: Hashable = None


def total(claims: Iterable[Claim], tag: Tag | None = None) -> int:
    """Bytes of claims (of one tag, where it is given), what is shared counted once."""
    own, shared = 0, dict[tuple[Tag, Hashable], int]()
    for claim in claims:
        if tag is not None and claim.tag is not tag:
            continue
        if claim.key is None:
            own += claim.bytes
        else:
            thing = (claim.tag, claim.key)
            shared[thing] = max(claim.bytes, shared.get(thing, 0))
    return own + sum(shared.values())
