"""From an error to the state of the plugin that caused it: one table, so that no failure is without a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fv_core.errors import FvError, PluginError
from fv_core.plugins.record import PluginRecord, PluginState

STATES: Final = {
    "FV102": PluginState.BROKEN,
    "FV103": PluginState.INCOMPATIBLE,
    "FV104": PluginState.INVALID,
    "FV108": PluginState.CONFLICT,
    "FV109": PluginState.INCOMPATIBLE,
    "FV110": PluginState.BROKEN,
    "FV111": PluginState.BLOCKED,
    "FV114": PluginState.BROKEN,
    "FV115": PluginState.BROKEN,
    "FV116": PluginState.BROKEN,
    "FV117": PluginState.BROKEN,
    "FV118": PluginState.INCOMPATIBLE,
    "FV119": PluginState.BROKEN,
    "FV121": PluginState.BROKEN,
}
"""Codes of plugins; every code of cards is INVALID."""


def refused(record: PluginRecord, findings: Sequence[FvError]) -> PluginRecord:
    """`record` in the state of its first finding, with the reasons of all of them.

    The record's own title is left out of the reasons: a listing shows them beside it.
    """
    first = findings[0]
    told = [f"{finding.code} {_message(record, finding)}" for finding in findings]
    return replace(
        record,
        state=STATES.get(first.code, PluginState.INVALID),
        code=first.code,
        reason="\n".join(told) if len(told) > 1 else _message(record, first),
        remedy=first.remedy,
    )


def pending_fault(record: PluginRecord) -> PluginError:
    """The error of a plugin that was refused by its metadata alone."""
    return PluginError(record.code, name=record.title, rule=record.reason, remedy=record.remedy)


def _message(record: PluginRecord, finding: FvError) -> str:
    return finding.message.removeprefix(record.title).removeprefix(":").strip()
