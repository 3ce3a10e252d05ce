"""Resolves the `module:attr` strings by which cards and specs name code."""

from __future__ import annotations

import importlib
from typing import Any

from fv_core.errors import PluginError
from fv_core.plugins.foreign import is_interrupt, told, undisturbed


def resolve_reference(reference: str, *, owner: str) -> Any:
    """The object that `reference` names; working folder, default dtype and signal handlers stay as they were.

    Raises:
        PluginError: FV105, not of the form, not importable, or without the attribute.
    """
    module, _, attribute = reference.partition(":")
    try:
        with undisturbed():
            return getattr(importlib.import_module(module), attribute)
    except BaseException as error:  # whatever the code of a plugin raises when it is imported
        if is_interrupt(error):
            raise
        raise PluginError(
            "FV105",
            name=f"{owner}: reference",
            value=reference,
            rule=f"does not resolve: {told(error)}",
            legal="module:attribute",
            remedy="Correct the reference, or install what it needs.",
        ) from error
