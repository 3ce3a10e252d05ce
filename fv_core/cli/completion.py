"""Shell completion of ids: from metadata where that is enough, from cards where it is not; never an error, no torch.

`eval "$(_FV_COMPLETE=bash_source fv)"` switches it on; `zsh_source` and `fish_source` for the other shells.
"""

from __future__ import annotations

import click

from fv_core.cli.stdout import kept
from fv_core.errors import FvError


def model_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of installed models that begin so; past the slash, only the plugin before it is imported."""
    from fv_core.plugins import default_registry  # only a completion of an id looks at plugins

    namespace, slash, _ = incomplete.partition("/")
    try:
        with kept():  # what a plugin prints is no completion
            found = default_registry()
            cards = found.load(namespace).cards if slash else tuple(found.cards())
    except FvError:
        return []  # a shell has nowhere to show it; the command itself will tell
    return [card.model_id for card in cards if card.model_id.startswith(incomplete)]


def plugin_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of installed plugins that begin so; imports none."""
    from fv_core.plugins import plugin_records

    try:
        return [record.name for record in plugin_records() if record.name.startswith(incomplete)]
    except FvError:
        return []


def plugin_list(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Lists of names with commas between them, the last of which begins so."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in plugin_names(ctx, param, last)]


def codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Error codes that begin so."""
    from fv_core.errors import CODES

    return [code for code in sorted(CODES) if code.startswith(incomplete.upper())]
