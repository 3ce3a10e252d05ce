"""Resolves the `module:attr` strings by which cards and specs name code."""

from __future__ import annotations

import importlib
from typing import Any

from fv_core.errors import PluginError


def resolve_reference(reference: str, *, owner: str) -> Any:
    """The object that `reference` names.

    Raises:
        PluginError: FV105, not of the form, not importable, or without the attribute.
    """
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # whatever the code of a plugin raises when it is imported
        raise PluginError(
            "FV105",
            name=f"{owner}: reference",
            value=reference,
            rule=f"does not resolve: {type(error).__name__}: {error}",
            legal="module:attribute",
            remedy="Correct the reference, or install what it needs.",
        ) from error
