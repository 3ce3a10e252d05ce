"""A plugin as it should be: one card of the tiny Wan classes. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import ModelCard, derive, hookimpl

fv_api = 1


@hookimpl
def fv_cards() -> Iterable[ModelCard]:
    """The cards of this plugin."""
    from fv_wan21.card import MICRO  # a test borrows its neighbour's classes; a plugin has its own

    return [derive(MICRO, model_id="good/tiny", family="good")]
