"""Causal Wan for fv: text, an image or a clip to video, chunk after chunk as it streams. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core.card import ModelCard
from fv_core.hookspecs import hookimpl

fv_api = 1

__all__ = ["fv_api", "fv_cards"]


@hookimpl
def fv_cards() -> Iterable[ModelCard]:
    """The cards of this plugin."""
    from fv_wan_causal.card import CARDS  # kept out of the import of the package, which discovery may repeat

    return CARDS
