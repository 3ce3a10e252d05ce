"""Loads one plugin and checks everything it returns before any of it is used; whatever fails becomes a finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from fv_core import codec
from fv_core.card import ModelCard, validate
from fv_core.errors import FvError, PluginError
from fv_core.extend import InterceptorSpec, RewardSpec, TrainingMethodSpec
from fv_core.plugins.foreign import is_interrupt, told, undisturbed
from fv_core.plugins.hooks import call_hook, find_hooks
from fv_core.plugins.importing import import_plugin
from fv_core.plugins.record import LoadedPlugin, Offer, PluginRecord, PluginState
from fv_core.plugins.verdict import refused

R = TypeVar("R")

_KINDS: Final = {InterceptorSpec: "interceptor", TrainingMethodSpec: "training method", RewardSpec: "reward"}


def load(record: PluginRecord) -> LoadedPlugin:
    """The plugin's records, or why it has none; never raises for what the plugin does.

    Loading again gives equal records: hooks return data, and nothing of fv's is changed by them.

    Raises:
        KeyboardInterrupt: the user interrupted.
    """
    with undisturbed() as changes:
        plugin = _quarantined(record)
    return _with_changes(plugin, changes) if changes else plugin


def _quarantined(record: PluginRecord) -> LoadedPlugin:
    try:
        return _loaded(record)
    except PluginError as error:
        return _refused(record, (error,))
    except BaseException as error:
        if is_interrupt(error):
            raise
        finding = _wrong(record, f"raised while it was checked: {told(error)}")
        finding.__cause__ = error
        return _refused(record, (finding,))


def _loaded(record: PluginRecord) -> LoadedPlugin:
    module = import_plugin(record)
    hooks = find_hooks(record, module)
    cards, specs = call_hook(record, hooks.fv_cards), call_hook(record, hooks.fv_interceptors)
    methods, rewards = call_hook(record, hooks.fv_training_methods), call_hook(record, hooks.fv_rewards)
    findings = (
        *_misplaced(record, cards, ModelCard, "model_id"),
        *_misplaced(record, specs, InterceptorSpec, "id"),
        *_misplaced(record, methods, TrainingMethodSpec, "id"),
        *_misplaced(record, rewards, RewardSpec, "id"),
    ) or (*_invalid(cards), *_impossible(record, [*specs, *methods, *rewards]))
    if findings:
        return _refused(record, findings)
    offers = (
        *(Offer(kind="card", id=card.model_id) for card in cards),
        *(Offer(kind=_KINDS[type(spec)], id=spec.id) for spec in (*specs, *methods, *rewards)),
    )
    return LoadedPlugin(
        record=replace(record, state=PluginState.READY, provides=offers),
        cards=tuple(cards),
        interceptors=tuple(specs),
        training_methods=tuple(methods),
        rewards=tuple(rewards),
    )


def _refused(record: PluginRecord, findings: Sequence[FvError]) -> LoadedPlugin:
    return LoadedPlugin(record=refused(record, findings), findings=tuple(findings))


def _with_changes(plugin: LoadedPlugin, changes: Sequence[str]) -> LoadedPlugin:
    """`plugin`, whose record also tells what loading it changed of the process."""
    record = plugin.record
    reasons = [record.reason] if record.reason else []
    reasons.append(f"plugin {record.name} ({record}), when it was imported, {', '.join(changes)}")
    remedy = (
        record.remedy or "Report it to the plugin's author; an import must change nothing of its process."
    )
    return replace(plugin, record=replace(record, reason="\n".join(reasons), remedy=remedy))


def _misplaced(record: PluginRecord, items: Sequence[Any], kind: type[R], field: str) -> Iterator[FvError]:
    """Records of another type, outside the plugin's namespace, or twice."""
    seen: set[str] = set()
    for item in items:
        if type(item) is not kind:  # a subclass may change its mind after it was checked
            yield _wrong(record, f"a hook returned a {type(item).__name__}, expected {kind.__name__}")
            continue
        ident = getattr(item, field)
        if not isinstance(ident, str) or not ident.startswith(f"{record.name}/"):
            yield _wrong(record, f"id {ident!r} is outside the namespace {record.name}/")
        elif ident in seen:
            yield _wrong(record, f"id {ident!r} appears twice")
        else:
            seen.add(ident)


def _invalid(cards: Sequence[ModelCard]) -> Iterator[FvError]:
    for card in cards:
        yield from validate(card)
        ModelCard.from_json(
            card.to_json()
        )  # raises for fields of other types: no listing is the first to find out


def _impossible(
    record: PluginRecord, specs: Sequence[InterceptorSpec | TrainingMethodSpec | RewardSpec]
) -> Iterator[FvError]:
    for spec in specs:
        codec.encode(spec)
        for fault in spec.faults():
            yield _wrong(record, f"{_KINDS[type(spec)]} {spec.id}: {fault}")


def _wrong(record: PluginRecord, rule: str) -> PluginError:
    return PluginError(
        "FV104",
        name=record.title,
        rule=rule,
        remedy="Report it to the plugin's author; the other plugins are not affected.",
    )
