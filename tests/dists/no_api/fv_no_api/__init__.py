"""States no API."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import ModelCard, hookimpl


@hookimpl
def fv_cards() -> Iterable[ModelCard]:
    """The cards of this plugin."""
    return []
