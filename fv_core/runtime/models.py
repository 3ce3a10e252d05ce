"""Which model a request without one gets."""

from __future__ import annotations

from fv_core.card import ModelCard
from fv_core.errors import PluginError
from fv_core.plugins import all_cards

EMBEDDED_DEFAULT = "wan21/tiny"


def default_model() -> ModelCard:
    """`wan21/tiny`, else the only installed card that needs no download.

    Raises:
        PluginError: FV106, there is none or more than one.
    """
    embedded = {card.model_id: card for card in all_cards() if card.checkpoint is None}
    if EMBEDDED_DEFAULT in embedded:
        return embedded[EMBEDDED_DEFAULT]
    if len(embedded) == 1:
        return next(iter(embedded.values()))
    raise PluginError(
        "FV106",
        name="model",
        rule="was not named and there is no default",
        legal=", ".join(card.model_id for card in all_cards()) or "no model plugin is installed",
        remedy="Name one, or install fv-wan21.",
    )
