"""Codes of plugins: found, imported, and held to their contract."""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.row import row

PLUGIN: Final = (
    row(
        "FV101", "unknown model", 2, 404, "model_not_found",
        "No installed plugin offers a card with this id. A model id is `<plugin>/<model>`; the plugin is found "
        "through the entry-point group `fv`. `fv models` lists what is installed.",
    ),
    row(
        "FV102", "plugin cannot be imported", 3, 503, "plugin_unavailable",
        "Importing the plugin's package raised. The plugin is left out and the others keep working; "
        "`FV_DEBUG=1` shows the traceback. Reinstalling the distribution named in the message usually cures it.",
    ),
    row(
        "FV103", "plugin speaks another API", 3, 503, "plugin_unavailable",
        "A plugin declares `fv_api = <int>` in its `__init__`; it must equal the API number of the installed "
        "fv-core. Install a plugin version made for this core, or the core the plugin was made for.",
    ),
    row(
        "FV104", "plugin breaks its own contract", 3, 503, "plugin_unavailable",
        "A record is of the wrong type, lies outside the plugin's namespace, appears twice, or says what cannot be. "
        "Nothing of the plugin is stored until all of it is right.",
    ),
    row(
        "FV105", "reference cannot be resolved", 3, 503, "plugin_unavailable",
        "Cards name code by `module:attribute` strings that are imported when they are needed. This one does "
        "not import, or has no such attribute.",
    ),
    row(
        "FV106", "no default model", 2, 400, "model_required",
        "No model was named, `wan21/tiny` is not installed, and the installed cards with embedded weights are "
        "none or several, so there is no default to fall back to. Name one with `--model`.",
    ),
    row(
        "FV107", "unknown interceptor", 2, 400, "extension_not_found",
        "No installed plugin offers an interceptor with this id.",
    ),
    row(
        "FV108", "two distributions claim one plugin name", 3, 503, "plugin_unavailable",
        "The name of an entry point in group `fv` is the namespace of a plugin's ids, so two installed distributions "
        "must not use the same one. Neither is loaded; uninstalling either cures it.",
    ),
    row(
        "FV109", "plugin needs other versions", 3, 503, "plugin_unavailable",
        "The plugin's own metadata (`Requires-Dist`) excludes the installed fv-core, or another distribution in the "
        "version that is installed: pip prints such a conflict and installs all the same. It is told from metadata, "
        "before anything of the plugin runs. A plugin that imports what this fv-core does not have gets it too.",
    ),
    row(
        "FV110", "editable source does not match its metadata", 3, 503, "plugin_unavailable",
        "The plugin was installed with `pip install -e FOLDER` and that folder is gone, or its pyproject.toml now "
        "declares other entry points than the installed metadata. Install it again, or uninstall it.",
    ),
    row(
        "FV111", "plugin is blocked", 3, 503, "plugin_blocked",
        "`FV_PLUGINS` lists the plugins that may be loaded (an empty value: none), and this one is not among them.",
    ),
    row(
        "FV112", "FV_PLUGINS names an unknown plugin", 3, 503, "plugin_unavailable",
        "Every name in `FV_PLUGINS` must be that of an installed plugin, so that a misspelt one does not quietly "
        "leave a plugin out.",
    ),
    row(
        "FV113", "unknown plugin", 2, 404, "plugin_not_found",
        "No installed distribution declares an entry point of this name in group `fv`. `fv plugins` lists them.",
    ),
    row(
        "FV114", "plugin lacks a dependency", 3, 503, "plugin_unavailable",
        "The plugin is there but a distribution that it requires or a module that it imports is not: it was removed, "
        "or belongs to an extra that was not installed. The hint names the extra where metadata tells it.",
    ),
    row(
        "FV115", "plugin implements an unknown hook", 3, 503, "plugin_unavailable",
        "A function marked with `hookimpl` has a name that is not one of fv's hooks; most often it is misspelt.",
    ),
    row(
        "FV116", "hook asks for unknown arguments", 3, 503, "plugin_unavailable",
        "fv's hooks take no arguments and wrap nothing: they return data and have no side effects.",
    ),
    row(
        "FV117", "hook raised", 3, 503, "plugin_unavailable",
        "A hook raised or returned None instead of its records. `fv plugins show NAME` prints the traceback.",
    ),
    row(
        "FV118", "plugin differs between processes", 3, 503, "plugin_unavailable",
        "A worker process is told which plugins, in which versions, its parent loaded. It found another version, "
        "or none, so it would compute with other code.",
    ),
    row(
        "FV119", "plugin metadata cannot be read", 3, 503, "plugin_unavailable",
        "The metadata of an installed plugin, or the pyproject.toml of a plugin folder, is absent or malformed.",
    ),
    row(
        "FV120", "component cannot be made", 3, 503, "plugin_unavailable",
        "The factory that a card names for a component raised while it made one whose weights come from no folder, so "
        "the plugin or a file that it ships is at fault. With a folder the files are named instead (FV253).",
    ),
    row(
        "FV121", "hook is not marked", 3, 503, "plugin_unavailable",
        "A function has the name of one of fv's hooks but not the mark `@hookimpl`, without which it is never called.",
    ),
    row(
        "FV122", "memory cannot be predicted", 3, 503, "plugin_unavailable",
        "The function that a card names as a component's `activation`, or as its own `caches`, raised or returned "
        "something else than numbers of bytes. They are called before anything is loaded, as "
        "`predict(geometry, config, dtype_bytes)` and `predict(card, request, dtype_bytes)`.",
    ),
    row(
        "FV123", "component is not its own", 3, 503, "plugin_unavailable",
        "Memory is counted, given back and put to sleep by component, so no tensor may be of two of them. The factory "
        "that a card names for a component returned a module with tensors that another loaded component has.",
    ),
)  # fmt: skip
