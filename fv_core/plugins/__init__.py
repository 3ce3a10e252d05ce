"""Plugins: found by metadata, imported one at a time when named. Free of torch and numpy."""

from fv_core.plugins.record import LoadedPlugin, Offer, PluginRecord, PluginState
from fv_core.plugins.registry import (
    Registry,
    all_cards,
    broken_plugins,
    default_registry,
    find_card,
    find_interceptor,
    plugin_records,
    record_of,
    worker_registry,
)

__all__ = [
    "LoadedPlugin",
    "Offer",
    "PluginRecord",
    "PluginState",
    "Registry",
    "all_cards",
    "broken_plugins",
    "default_registry",
    "find_card",
    "find_interceptor",
    "plugin_records",
    "record_of",
    "worker_registry",
]
