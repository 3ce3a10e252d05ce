"""Imports one plugin and checks everything it returns before any of it is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any, TypeVar

import pluggy

from fv_core import hookspecs
from fv_core.card import ModelCard, validate
from fv_core.errors import PluginError
from fv_core.extend import InterceptorSpec
from fv_core.plugins.record import LoadedPlugin, PluginRecord

R = TypeVar("R")


def load(record: PluginRecord) -> LoadedPlugin:
    """The plugin's records.

    Raises:
        PluginError: FV102 it does not import, FV103 another API, FV104 a hook or record is wrong.
        CardError: FV2xx, the first finding of the first card that is not valid.
    """
    module = _import(record)
    _check_api(record, module)
    manager = pluggy.PluginManager("fv")
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name=record.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise _broken(record, str(error)) from error
    cards = _records(record, manager.hook.fv_cards, ModelCard, "model_id")
    interceptors = _records(record, manager.hook.fv_interceptors, InterceptorSpec, "id")
    for card in cards:
        for finding in validate(card):
            raise finding
    for spec in interceptors:
        for fault in spec.faults():
            raise _broken(record, f"interceptor {spec.id}: {fault}")
    return LoadedPlugin(cards=cards, interceptors=interceptors)


def _import(record: PluginRecord) -> ModuleType:
    try:
        return importlib.import_module(record.module)
    except (Exception, SystemExit) as error:
        raise PluginError(
            "FV102",
            name=f"plugin {record.name} ({record})",
            rule=f"does not import: {type(error).__name__}: {error}",
            remedy=f"Reinstall it (pip install --force-reinstall {record.dist}) or uninstall it.",
        ) from error


def _check_api(record: PluginRecord, module: ModuleType) -> None:
    api = getattr(module, "fv_api", None)
    if api != hookspecs.PLUGIN_API:
        raise PluginError(
            "FV103",
            name=f"plugin {record.name} ({record}): fv_api",
            value=api,
            rule="is not the API of this fv-core",
            legal=str(hookspecs.PLUGIN_API),
            remedy="Install versions of plugin and core that fit.",
        )


def _records(record: PluginRecord, hook: Any, kind: type[R], id_field: str) -> tuple[R, ...]:
    try:
        answers: list[Iterable[Any]] = hook()
        found = tuple(item for answer in answers for item in answer)
    except Exception as error:
        raise _broken(record, f"a hook raised {type(error).__name__}: {error}") from error
    seen: set[str] = set()
    for item in found:
        if not isinstance(item, kind):
            raise _broken(record, f"a hook returned a {type(item).__name__}, expected {kind.__name__}")
        ident = str(getattr(item, id_field))
        if not ident.startswith(f"{record.name}/") or ident in seen:
            why = "appears twice" if ident in seen else f"is outside the namespace {record.name}/"
            raise _broken(record, f"id {ident!r} {why}")
        seen.add(ident)
    return found


def _broken(record: PluginRecord, rule: str) -> PluginError:
    return PluginError(
        "FV104",
        name=f"plugin {record.name} ({record})",
        rule=rule,
        remedy="Report it to the plugin's author; the other plugins are not affected.",
    )
