"""Imports one plugin and checks everything it returns before any of it is used; whatever fails becomes a finding."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Final, TypeVar

import pluggy

from fv_core import hookspecs
from fv_core.card import ModelCard, validate
from fv_core.errors import FvError, PluginError
from fv_core.extend import InterceptorSpec
from fv_core.plugins.discovery import extra_with
from fv_core.plugins.record import LoadedPlugin, Offer, PluginRecord, PluginState
from fv_core.plugins.verdict import refused

R = TypeVar("R")

HOOKS: Final = tuple(name for name in vars(hookspecs) if name.startswith("fv_"))


def load(record: PluginRecord) -> LoadedPlugin:
    """The plugin's records, or why it has none; never raises for what the plugin does.

    Loading again gives equal records: hooks return data, and nothing of fv's is changed by them.
    """
    try:
        module = _import(record)
        _check_api(record, module)
        hooks = _hooks(record, module)
        cards, specs = _call(record, hooks.fv_cards), _call(record, hooks.fv_interceptors)
    except PluginError as error:
        return _refused(record, (error,))
    findings = (
        *_misplaced(record, cards, ModelCard, "model_id"),
        *_misplaced(record, specs, InterceptorSpec, "id"),
    ) or (*_invalid(cards), *_impossible(record, specs))
    if findings:
        return _refused(record, findings)
    offers = (
        *(Offer(kind="card", id=card.model_id) for card in cards),
        *(Offer(kind="interceptor", id=spec.id) for spec in specs),
    )
    ready = replace(record, state=PluginState.READY, provides=offers)
    return LoadedPlugin(record=ready, cards=tuple(cards), interceptors=tuple(specs))


def _refused(record: PluginRecord, findings: Sequence[FvError]) -> LoadedPlugin:
    return LoadedPlugin(record=refused(record, findings), findings=tuple(findings))


def _import(record: PluginRecord) -> ModuleType:
    before = set(sys.modules)
    try:
        return importlib.import_module(record.module)
    except (Exception, SystemExit) as error:
        # What came of the plugin itself goes; libraries that it pulled in stay, as others may hold them by now.
        for name in set(sys.modules) - before:
            if _is_part(name, record.module):
                del sys.modules[name]
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent and not _is_part(absent, record.module) and not _is_part(record.module, absent):
            raise _lacking(record, absent) from error
        raise PluginError(
            "FV102",
            name=record.title,
            rule=f"does not import: {type(error).__name__}: {error}",
            remedy=f"Reinstall it (pip install --force-reinstall {record.dist}) or uninstall it.",
        ) from error


def _is_part(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _lacking(record: PluginRecord, absent: str) -> PluginError:
    extra = extra_with(record.dist, absent)
    what = (
        f'"{record.dist}[{extra}]"'
        if extra
        else f"what provides {absent}, or --force-reinstall {record.dist}"
    )
    return PluginError(
        "FV114",
        name=record.title,
        rule=f"needs module {absent}, which is not installed" + (f" (extra {extra})" if extra else ""),
        remedy=f"pip install {what}.",
    )


def _check_api(record: PluginRecord, module: ModuleType) -> None:
    api = getattr(module, "fv_api", None)
    if api != hookspecs.PLUGIN_API:
        raise PluginError(
            "FV103",
            name=f"{record.title}: fv_api",
            value=api,
            rule="is not stated" if api is None else "is not the API of this fv-core",
            legal=str(hookspecs.PLUGIN_API),
            remedy=f"State fv_api = {hookspecs.PLUGIN_API} in {record.module}/__init__.py."
            if api is None
            else "Install versions of plugin and core that fit.",
        )


def _hooks(record: PluginRecord, module: ModuleType) -> Any:
    """The plugin's hooks, in a manager of its own: nothing is left behind when one is wrong."""
    manager = pluggy.PluginManager("fv")
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name=record.name)
    except pluggy.PluginValidationError as error:
        raise PluginError(
            "FV116",
            name=record.title,
            rule=f"has a hook that cannot be called: {_flat(error)}",
            legal="hooks without arguments",
            remedy="Remove the arguments; hooks return data and take nothing.",
        ) from error
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise _unknown_hook(record, module, error) from error
    return manager.hook


def _unknown_hook(
    record: PluginRecord, module: ModuleType, error: pluggy.PluginValidationError
) -> PluginError:
    marked = [name for name, value in vars(module).items() if hasattr(value, "fv_impl")]
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


def _call(record: PluginRecord, hook: Any) -> list[Any]:
    try:
        answers: list[Iterable[Any]] = hook()
        return [item for answer in answers for item in answer]
    except (Exception, SystemExit) as error:
        raise PluginError(
            "FV117",
            name=f"{record.title}: hook {hook.name}",
            rule=f"raised {type(error).__name__}: {error}",
            remedy=f"Report it to the plugin's author; `fv plugins show {record.name}` has the traceback.",
        ) from error


def _misplaced(record: PluginRecord, items: Sequence[Any], kind: type[R], field: str) -> Iterator[FvError]:
    """Records of another type, outside the plugin's namespace, or twice."""
    seen: set[str] = set()
    for item in items:
        if not isinstance(item, kind):
            yield _wrong(record, f"a hook returned a {type(item).__name__}, expected {kind.__name__}")
            continue
        ident = str(getattr(item, field))
        if not ident.startswith(f"{record.name}/"):
            yield _wrong(record, f"id {ident!r} is outside the namespace {record.name}/")
        if ident in seen:
            yield _wrong(record, f"id {ident!r} appears twice")
        seen.add(ident)


def _invalid(cards: Sequence[ModelCard]) -> Iterator[FvError]:
    for card in cards:
        yield from validate(card)


def _impossible(record: PluginRecord, specs: Sequence[InterceptorSpec]) -> Iterator[FvError]:
    for spec in specs:
        for fault in spec.faults():
            yield _wrong(record, f"interceptor {spec.id}: {fault}")


def _wrong(record: PluginRecord, rule: str) -> PluginError:
    return PluginError(
        "FV104",
        name=record.title,
        rule=rule,
        remedy="Report it to the plugin's author; the other plugins are not affected.",
    )


def _flat(error: Exception) -> str:
    return " ".join(str(error).split())
