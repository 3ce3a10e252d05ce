"""Plugins: found by metadata, imported one at a time when named. Free of torch and numpy."""

from fv_core.plugins.record import LoadedPlugin, PluginRecord
from fv_core.plugins.registry import (
    all_cards,
    broken_plugins,
    find_card,
    find_interceptor,
    plugin_records,
    record_of,
)

__all__ = [
    "LoadedPlugin",
    "PluginRecord",
    "all_cards",
    "broken_plugins",
    "find_card",
    "find_interceptor",
    "plugin_records",
    "record_of",
]
