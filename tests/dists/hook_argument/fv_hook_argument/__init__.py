"""Asks for an argument that no hook gets."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import ModelCard, hookimpl

fv_api = 1


@hookimpl
def fv_cards(engine: object) -> Iterable[ModelCard]:
    """The cards of this plugin."""
    return []
