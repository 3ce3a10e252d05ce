"""`FV_PLUGINS`, or an option in its place: which of the installed plugins may be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from fv_core.errors import PluginError
from fv_core.plugins.record import PluginRecord
from fv_core.plugins.verdict import refused

VARIABLE: Final = "FV_PLUGINS"


def allowed(
    records: Sequence[PluginRecord], names: str | None, by: str = VARIABLE
) -> tuple[PluginRecord, ...]:
    """`records` with those blocked that `names` leaves out.

    Args:
        names: plugin names with commas between them; "" allows none, None allows all.
        by: what states them, for errors.

    Raises:
        PluginError: FV112, a name is not that of an installed plugin.
    """
    if names is None:
        return tuple(records)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    installed = sorted({record.name for record in records})
    for name in wanted:
        if name not in installed:
            close = get_close_matches(name, installed, n=1)
            raise PluginError(
                "FV112",
                name=by,
                value=name,
                rule="is not an installed plugin",
                legal=", ".join(installed) or "no plugin is installed",
                remedy=f"Did you mean {close[0]}?" if close else f"Correct it, or do without {by}.",
            )
    return tuple(record if record.name in wanted else _blocked(record, names, by) for record in records)


def _blocked(record: PluginRecord, names: str, by: str) -> PluginRecord:
    fault = PluginError(
        "FV111",
        name=record.title,
        rule=f"is blocked: {by} is {names!r}",
        remedy=f"Add {record.name} to {by}, or do without it.",
    )
    return refused(record, (fault,))
