"""Misspells a hook."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import ModelCard, hookimpl

fv_api = 1


@hookimpl
def fv_crads() -> Iterable[ModelCard]:
    """Meant to be `fv_cards`."""
    return []
