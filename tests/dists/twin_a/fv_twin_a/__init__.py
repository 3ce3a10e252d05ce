"""One of two distributions with one entry point name."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import ModelCard, hookimpl

fv_api = 1


@hookimpl
def fv_cards() -> Iterable[ModelCard]:
    """The cards of this plugin."""
    return []
