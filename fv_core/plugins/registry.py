"""What the installed plugins offer, by id: only the plugin that an id names is imported; failures stay apart.

A `Registry` is a value of its own, so that tests and embedding programs can have one beside the process's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from typing import Final, TypeVar

from fv_core.card import ModelCard
from fv_core.errors import FvError, PluginError
from fv_core.extend import InterceptorSpec, RewardSpec, TrainingMethodSpec
from fv_core.plugins import discovery, loader
from fv_core.plugins.allow import VARIABLE, allowed
from fv_core.plugins.model_folder import model_folder, read_model
from fv_core.plugins.record import LoadedPlugin, PluginRecord, PluginState
from fv_core.plugins.source import drifted
from fv_core.plugins.verdict import pending_fault
from fv_core.switch import is_on

R = TypeVar("R")

_LIMITED_BY: Final = ContextVar("_LIMITED_BY", default=VARIABLE)


class Registry:
    """The plugins of `records`, each loaded at most once.

    Args:
        records: as `discovery.discover` finds them.
        strict: raise for any plugin that does not work, instead of leaving it out. Plugins that `FV_PLUGINS` blocks
            are left out on purpose and raise only when they are named.
    """

    def __init__(self, records: Sequence[PluginRecord], *, strict: bool = False) -> None:
        self._records = tuple(records)
        self._strict = strict
        self._loaded: dict[PluginRecord, LoadedPlugin] = {}
        self._folders: dict[str, ModelCard] = {}

    def records(self) -> tuple[PluginRecord, ...]:
        """Every plugin in the state that is known so far; imports nothing."""
        return tuple(self._loaded[one].record if one in self._loaded else one for one in self._records)

    def check(self) -> tuple[PluginRecord, ...]:
        """Every plugin after loading it; of editable ones also whether source and metadata agree."""
        return tuple(drifted(self._load(one).record) for one in self._records)

    def load(self, name: str) -> LoadedPlugin:
        """The plugin `name`, all of it checked.

        Raises:
            FvError: FV113 there is none, else the first finding that keeps it, strict any plugin, from working.
        """
        if self._strict:
            self._refuse_any()
        return self._working(self._named(name))

    def findings(self, name: str) -> tuple[FvError, ...]:
        """Everything that keeps the plugin `name` from working; () for one that works.

        Raises:
            PluginError: FV113, there is none.
        """
        return self._load(self._named(name)).findings

    def errors(self) -> dict[PluginRecord, FvError]:
        """Why each plugin that does not work does not; what `FV_PLUGINS` blocks is left out."""
        found = {}
        for one in self._records:
            if one.state is not PluginState.BLOCKED and (plugin := self._load(one)).findings:
                found[plugin.record] = plugin.findings[0]
        return found

    def cards(self) -> list[ModelCard]:
        """The cards of every plugin that works.

        Raises:
            FvError: strict, and a plugin does not work.
        """
        return [card for plugin in self._working_ones() for card in plugin.cards]

    def interceptors(self) -> list[InterceptorSpec]:
        """The interceptors of every plugin that works; as `cards`."""
        return [spec for plugin in self._working_ones() for spec in plugin.interceptors]

    def training_methods(self) -> list[TrainingMethodSpec]:
        """The training methods of every plugin that works; as `cards`."""
        return [spec for plugin in self._working_ones() for spec in plugin.training_methods]

    def rewards(self) -> list[RewardSpec]:
        """The rewards of every plugin that works; as `cards`."""
        return [spec for plugin in self._working_ones() for spec in plugin.rewards]

    def find_training_method(self, ident: str) -> TrainingMethodSpec | None:
        """The installed training method of this id, None if there is none; loads its plugin alone.

        Raises:
            FvError: what keeps its plugin from working.
        """
        return self._find(ident, lambda plugin: plugin.training_methods, lambda spec: spec.id)

    def find_reward(self, ident: str) -> RewardSpec | None:
        """As `find_training_method`."""
        return self._find(ident, lambda plugin: plugin.rewards, lambda spec: spec.id)

    def find_card(self, model_id: str) -> ModelCard:
        """The installed card `model_id`; loads its plugin alone. A path to a folder that is a model gives its card.

        Raises:
            PluginError: FV101 unknown (with close matches), or what keeps its plugin from working.
            CardError: a card of the plugin is not valid.
        """
        found = self._find(model_id, lambda plugin: plugin.cards, lambda card: card.model_id)
        if found is not None:
            return found
        if (folder := model_folder(model_id)) is not None:
            card = read_model(folder, self.find_card)
            self._folders[card.model_id] = card
            return card
        if model_id in self._folders:
            return self._folders[model_id]
        known = [card.model_id for card in self.cards()]
        close = get_close_matches(model_id, known, n=3, cutoff=0.4)
        raise PluginError(
            "FV101",
            name="model",
            value=model_id,
            rule="is not installed",
            legal=", ".join(known) or "no model plugin is installed",
            remedy=f"Did you mean {' or '.join(close)}?" if close else "Install the plugin that offers it.",
        )

    def find_interceptor(self, ident: str) -> InterceptorSpec:
        """Raises:
        PluginError: FV107 unknown, or what keeps its plugin from working.
        """
        found = self._find(ident, lambda plugin: plugin.interceptors, lambda spec: spec.id)
        if found is not None:
            return found
        raise PluginError(
            "FV107",
            name="interceptor",
            value=ident,
            rule="is not installed",
            legal=", ".join(spec.id for spec in self.interceptors()) or "no plugin offers one",
            remedy="Install the plugin that offers it, or correct the id.",
        )

    def record_of(self, card: ModelCard) -> PluginRecord | None:
        """The plugin that brings the card; None for a card made in the program."""
        namespace = card.model_id.partition("/")[0]
        return next((record for record in self.records() if record.name == namespace), None)

    def _find(
        self, ident: str, offers: Callable[[LoadedPlugin], Iterable[R]], id_of: Callable[[R], str]
    ) -> R | None:
        namespace = ident.partition("/")[0]
        if all(record.name != namespace for record in self._records):
            return None
        return next((item for item in offers(self.load(namespace)) if id_of(item) == ident), None)

    def _named(self, name: str) -> PluginRecord:
        found = next((record for record in self._records if record.name == name), None)
        if found is not None:
            return found
        names = sorted({record.name for record in self._records})
        close = get_close_matches(name, names, n=1)
        raise PluginError(
            "FV113",
            name="plugin",
            value=name,
            rule="is not installed",
            legal=", ".join(names) or "no plugin is installed",
            remedy=f"Did you mean {close[0]}?" if close else "Install it, or correct the name.",
        )

    def _load(self, record: PluginRecord) -> LoadedPlugin:
        if record not in self._loaded:
            works = record.state.works
            self._loaded[record] = (
                loader.load(record)
                if works
                else LoadedPlugin(record=record, findings=(pending_fault(record),))
            )
        return self._loaded[record]

    def _working(self, record: PluginRecord) -> LoadedPlugin:
        plugin = self._load(record)
        for finding in plugin.findings:
            raise finding
        return plugin

    def _working_ones(self) -> list[LoadedPlugin]:
        if self._strict:
            self._refuse_any()
        return [plugin for plugin in map(self._load, self._records) if not plugin.findings]

    def _refuse_any(self) -> None:
        for record in self._records:
            if record.state is not PluginState.BLOCKED:
                self._working(record)


def worker_registry(pairs: Iterable[tuple[str, str]]) -> Registry:
    """A registry of exactly these (plugin name, version) pairs, for a process that works for another one.

    Raises:
        PluginError: FV118, a plugin is not here in that version.
    """
    here = {record.name: record for record in discovery.discover()}
    wanted = []
    for name, version in pairs:
        record = here.get(name)
        if record is None or record.version != version:
            have = "it is absent" if record is None else f"version {record.version} is here"
            raise PluginError(
                "FV118",
                name=f"plugin {name}",
                value=version,
                rule=f"was loaded by the parent process, but {have}",
                remedy="Give both processes one environment.",
            )
        wanted.append(record)
    return Registry(wanted)


@cache
def default_registry() -> Registry:
    """The registry of this process, as `FV_PLUGINS` and `FV_STRICT_PLUGINS` want it.

    Raises:
        PluginError: FV112, `FV_PLUGINS` names a plugin that is not installed.
        RequestError: FV316, `FV_STRICT_PLUGINS` is neither yes nor no.
    """
    records = allowed(discovery.discover(), os.environ.get(VARIABLE), _LIMITED_BY.get())
    return Registry(records, strict=is_on("FV_STRICT_PLUGINS"))


@contextmanager
def limited(names: str, *, by: str) -> Iterator[None]:
    """While it is entered, this process and those it starts have the plugins `names` alone, as `FV_PLUGINS` has it.

    Args:
        by: what states them, for errors.

    Raises:
        PluginError: FV112, one of them is not installed.
    """
    before, token = os.environ.get(VARIABLE), _LIMITED_BY.set(by)
    os.environ[VARIABLE] = names
    default_registry.cache_clear()
    try:
        default_registry()
        yield
    finally:
        _LIMITED_BY.reset(token)
        del os.environ[VARIABLE]
        os.environ |= {} if before is None else {VARIABLE: before}
        default_registry.cache_clear()


def plugin_records() -> tuple[PluginRecord, ...]:
    """`Registry.records` of this process."""
    return default_registry().records()


def find_card(model_id: str) -> ModelCard:
    """`Registry.find_card` of this process."""
    return default_registry().find_card(model_id)


def all_cards() -> list[ModelCard]:
    """`Registry.cards` of this process; what is left out is told by `broken_plugins`."""
    return default_registry().cards()


def broken_plugins() -> dict[PluginRecord, FvError]:
    """`Registry.errors` of this process."""
    return default_registry().errors()


def find_interceptor(ident: str) -> InterceptorSpec:
    """`Registry.find_interceptor` of this process."""
    return default_registry().find_interceptor(ident)


def record_of(card: ModelCard) -> PluginRecord | None:
    """`Registry.record_of` of this process."""
    return default_registry().record_of(card)
