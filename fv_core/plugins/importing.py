"""Imports the package of one plugin; what keeps it from being imported is told with what cures it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

from fv_core import __version__, hookspecs
from fv_core.errors import PluginError
from fv_core.plugins.discovery import CORE, extras_with
from fv_core.plugins.foreign import is_interrupt, told
from fv_core.plugins.record import PluginRecord

_CORE_PACKAGE: Final = "fv_core"


def import_plugin(record: PluginRecord) -> ModuleType:
    """The plugin's package.

    Raises:
        PluginError: FV102 it raises, FV109 it needs another core, FV114 it lacks a module, FV103 another API.
    """
    before = set(sys.modules)
    try:
        module = importlib.import_module(record.module)
    except BaseException as error:
        # What came of the plugin itself goes; libraries that it pulled in stay, as others may hold them by now.
        for name in set(sys.modules) - before:
            if _is_part(name, record.module):
                del sys.modules[name]
        if is_interrupt(error):
            raise
        raise _unimportable(record, error) from error
    _check_api(record, module)
    return module


def _unimportable(record: PluginRecord, error: BaseException) -> PluginError:
    absent = error.name if isinstance(error, ImportError) else None
    if absent and _is_part(absent, _CORE_PACKAGE):
        return _other_core(record, error)
    foreign = absent and not _is_part(absent, record.module) and not _is_part(record.module, absent)
    if absent and foreign and isinstance(error, ModuleNotFoundError):
        return _lacking(record, absent)
    return PluginError(
        "FV102",
        name=record.title,
        rule=f"does not import: {told(error)}",
        remedy=f"Reinstall it (pip install --force-reinstall {record.dist}) or uninstall it.",
    )


def _is_part(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _other_core(record: PluginRecord, error: BaseException) -> PluginError:
    return PluginError(
        "FV109",
        name=record.title,
        rule=f"imports what {CORE} {__version__} does not have: {told(error)}",
        remedy=f"Install versions that fit: pip install --upgrade {CORE} {record.dist}.",
    )


def _lacking(record: PluginRecord, absent: str) -> PluginError:
    extras = extras_with(record.dist, absent)
    told_extras = f" ({'extra' if len(extras) == 1 else 'one of the extras'} {', '.join(extras)})"
    what = " or ".join(f'"{record.dist}[{extra}]"' for extra in extras)
    return PluginError(
        "FV114",
        name=record.title,
        rule=f"needs module {absent}, which is not installed{told_extras if extras else ''}",
        remedy=f"pip install {what or f'what provides {absent}, or --force-reinstall {record.dist}'}.",
    )


def _check_api(record: PluginRecord, module: ModuleType) -> None:
    api = getattr(module, "fv_api", None)
    if type(api) is not int or api != hookspecs.PLUGIN_API:
        raise PluginError(
            "FV103",
            name=f"{record.title}: fv_api",
            value=api,
            rule="is not stated" if api is None else "is not the API of this fv-core",
            legal=str(hookspecs.PLUGIN_API),
            remedy="Install versions of plugin and core that fit."
            if type(api) is int
            else f"State fv_api = {hookspecs.PLUGIN_API} in {record.module}/__init__.py.",
        )
