"""Finds cards and interceptors by id, importing only the plugin that the id names."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from fv_core.card import ModelCard
from fv_core.errors import FvError, PluginError
from fv_core.extend import InterceptorSpec
from fv_core.plugins import discovery, loader
from fv_core.plugins.record import LoadedPlugin, PluginRecord


@cache
def plugin_records() -> tuple[PluginRecord, ...]:
    """The installed plugins, from metadata."""
    return discovery.discover()


@cache
def _loaded(record: PluginRecord) -> LoadedPlugin:
    return loader.load(record)


def find_card(model_id: str) -> ModelCard:
    """The installed card `model_id`; loads its plugin alone.

    Raises:
        PluginError: FV101 unknown (with close matches), or what loading its plugin raised.
        CardError: a card of the plugin is not valid.
    """
    plugin = _plugin_of(model_id)
    cards = {card.model_id: card for card in plugin.cards} if plugin is not None else {}
    if model_id in cards:
        return cards[model_id]
    known = [card.model_id for card in all_cards()]
    close = get_close_matches(model_id, known, n=3, cutoff=0.4)
    raise PluginError(
        "FV101",
        name="model",
        value=model_id,
        rule="is not installed",
        legal=", ".join(known) or "no model plugin is installed",
        remedy=f"Did you mean {' or '.join(close)}?" if close else "Install the plugin that offers it.",
    )


def all_cards() -> list[ModelCard]:
    """The cards of every plugin that loads; a broken one is left out here and reported by `broken_plugins`."""
    return [card for plugin in _loadable() for card in plugin.cards]


def broken_plugins() -> dict[PluginRecord, FvError]:
    """Why each plugin that does not load does not."""
    broken = {}
    for record in plugin_records():
        try:
            _loaded(record)
        except FvError as error:
            broken[record] = error
    return broken


def find_interceptor(ident: str) -> InterceptorSpec:
    """Raises:
    PluginError: FV107 unknown, or what loading its plugin raised.
    """
    plugin = _plugin_of(ident)
    for spec in plugin.interceptors if plugin is not None else ():
        if spec.id == ident:
            return spec
    known = [spec.id for loaded in _loadable() for spec in loaded.interceptors]
    raise PluginError(
        "FV107",
        name="interceptor",
        value=ident,
        rule="is not installed",
        legal=", ".join(known) or "no plugin offers one",
        remedy="Install the plugin that offers it, or correct the id.",
    )


def record_of(card: ModelCard) -> PluginRecord | None:
    """The plugin that brings the card; None for a card made in the program."""
    namespace = card.model_id.partition("/")[0]
    return next((record for record in plugin_records() if record.name == namespace), None)


def _plugin_of(ident: str) -> LoadedPlugin | None:
    namespace = ident.partition("/")[0]
    return next((_loaded(record) for record in plugin_records() if record.name == namespace), None)


def _loadable() -> list[LoadedPlugin]:
    broken = broken_plugins()
    return [_loaded(record) for record in plugin_records() if record not in broken]
