"""Settles the adapters that a request names, or refuses them. Free of torch."""

from __future__ import annotations

import math

from fv_core.adapters.faults import illegal, unreadable
from fv_core.adapters.files import find
from fv_core.card import ModelCard
from fv_core.request import Adapter, Request, UsedAdapter


def settled_adapters(request: Request, card: ModelCard) -> tuple[UsedAdapter, ...]:
    """The request's adapters in its order, with the hashes of their files.

    Raises:
        RequestError: FV322 a file is absent or has changed, FV324 one is not legal.
    """
    given = request.adapters
    if not isinstance(given, (tuple, list)) or not all(isinstance(one, Adapter) for one in given):
        raise illegal(
            "adapters", given, "are not adapters", "a tuple of Adapter", "Give (Adapter(path=...),)."
        )
    if given and not takers(card):
        raise illegal(
            "adapters", given[0].path, f"are not taken by {card.model_id}", "none", "Leave them out."
        )
    settled = tuple(map(_settled, given))
    hashes = [one.sha256 for one in settled]
    for one in settled:
        if hashes.count(one.sha256) > 1:
            raise illegal(
                "adapter", one.path, "is given twice", "each once", "Add its scales up, and give it once."
            )
    return settled


def takers(card: ModelCard) -> tuple[str, ...]:
    """The components that take adapters."""
    return tuple(name for name, spec in card.components.items() if spec.adapters is not None)


def _settled(given: Adapter) -> UsedAdapter:
    scale = given.scale
    number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
    if not number or not math.isfinite(scale):
        raise illegal(
            f"scale of adapter {given.path}",
            scale,
            "is no finite number",
            "any, 1 as it was trained",
            "Correct it; on the command line the form is PATH[:SCALE].",
        )
    found = find(given.path).sha256()
    if given.sha256 not in ("", found):
        raise unreadable(
            given.path,
            f"has changed: its sha256 is {found}, not {given.sha256}",
            "Bring back the file that the run was made with, or make a new request.",
        )
    return UsedAdapter(path=given.path, sha256=found, scale=float(scale))
