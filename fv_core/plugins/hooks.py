"""The hooks of one plugin's package: found by their mark, held to their form, and called."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Final

import pluggy

from fv_core import hookspecs
from fv_core.errors import PluginError
from fv_core.plugins.foreign import is_interrupt, told
from fv_core.plugins.record import PluginRecord

HOOKS: Final = tuple(name for name in vars(hookspecs) if name.startswith("fv_"))


def find_hooks(record: PluginRecord, module: ModuleType) -> Any:
    """The plugin's hooks, in a manager of its own: nothing is left behind when one is wrong.

    Raises:
        PluginError: FV115 unknown, FV116 with arguments or a wrapper, FV121 without its mark.
    """
    marked = dict(_marked(module))
    for name, options in marked.items():
        if options.get("wrapper") or options.get("hookwrapper"):
            raise _uncallable(record, f"hook {name} is a wrapper", "Mark it with a plain @hookimpl.")
    for name in HOOKS:
        if name not in marked and callable(getattr(module, name, None)):
            raise PluginError(
                "FV121",
                name=f"{record.title}: hook {name}",
                rule="is not marked, so it would never be called",
                remedy="Put @hookimpl before it (from fv_core import hookimpl).",
            )
    return _registered(record, module, marked)


def call_hook(record: PluginRecord, hook: Any) -> list[Any]:
    """What the hook returns, () where the plugin does not implement it.

    Raises:
        PluginError: FV117, it raised or returned nothing that can be iterated.
    """
    found: list[Any] = []
    for implementation in hook.get_hookimpls():
        try:
            answer: Iterable[Any] | None = implementation.function()
            found += () if answer is None else answer
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PluginError(
                "FV117",
                name=f"{record.title}: hook {hook.name}",
                rule=f"raised {told(error)}",
                remedy=f"Report it to the plugin's author; `fv plugins show {record.name}` has the traceback.",
            ) from error
        if answer is None:
            raise PluginError(
                "FV117",
                name=f"{record.title}: hook {hook.name}",
                rule="returned None in place of a list",
                remedy="Return a list, an empty one for nothing; a return statement may be missing.",
            )
    return found


def _marked(module: ModuleType) -> Iterator[tuple[str, dict[str, Any]]]:
    """The functions of the module that carry fv's mark, with its options."""
    for name in dir(module):
        value = getattr(module, name)
        options = getattr(value, "fv_impl", None) if inspect.isroutine(value) else None
        if isinstance(options, dict):
            yield name, options


def _registered(record: PluginRecord, module: ModuleType, marked: Iterable[str]) -> Any:
    manager = pluggy.PluginManager("fv")
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name=record.name)
    except pluggy.PluginValidationError as error:
        rule = f"has a hook that cannot be called: {_flat(error)}"
        raise _uncallable(
            record, rule, "Remove the arguments; hooks return data and take nothing."
        ) from error
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise _unknown_hook(record, marked, error) from error
    return manager.hook


def _uncallable(record: PluginRecord, rule: str, remedy: str) -> PluginError:
    return PluginError("FV116", name=record.title, rule=rule, legal="hooks without arguments", remedy=remedy)


def _unknown_hook(
    record: PluginRecord, marked: Iterable[str], error: pluggy.PluginValidationError
) -> PluginError:
    unknown = next((name for name in marked if name not in HOOKS), None)
    close = get_close_matches(unknown or "", HOOKS, n=1)
    return PluginError(
        "FV115",
        name=f"{record.title}: hook",
        value=unknown,
        rule="is not one of fv's" if unknown else _flat(error),
        legal=", ".join(HOOKS),
        remedy=f"Did you mean {close[0]}?" if close else "Remove it, or correct its name.",
    )


def _flat(error: Exception) -> str:
    return " ".join(str(error).split())
