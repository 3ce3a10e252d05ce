"""The plugin as fv sees it: the API it was written for and its hooks. Imports no torch, and neither does `card`."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import ModelCard, hookimpl
from fv_echo.card import TINY

fv_api = 1


@hookimpl
def fv_cards() -> Iterable[ModelCard]:
    """The cards of this plugin; their ids begin with `echo/`, the name of its entry point."""
    return (TINY,)
