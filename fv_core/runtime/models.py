"""Which model a request without one gets."""

from __future__ import annotations

from fv_core.card import ModelCard
from fv_core.errors import PluginError
from fv_core.plugins import PluginState, all_cards, plugin_records

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
    raise _no_default()


def _no_default() -> PluginError:
    """FV106; where the usual default is installed and blocked, that is what stands in the way."""
    usual, cards = EMBEDDED_DEFAULT.partition("/")[0], [card.model_id for card in all_cards()]
    blocked = [record for record in plugin_records() if record.state is PluginState.BLOCKED]
    reason = "".join(f": {record.title} {record.reason}" for record in blocked if record.name == usual)
    remedies = [record.remedy for record in blocked if record.name == usual] or ["Install fv-wan21."]
    return PluginError(
        "FV106",
        name="model",
        rule=f"was not named and there is no default{reason}",
        legal=", ".join(cards) or f"no model plugin is {'allowed' if blocked else 'installed'}",
        remedy=f"Name one. {remedies[0]}" if cards else remedies[0],
    )
