"""Checks of a plugin's source and of every reference of a card, and where in a source a failure lies."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from fv_core.card import ModelCard
from fv_core.errors import FvError
from fv_core.extend import InterceptorSpec
from fv_core.plugins import LoadedPlugin, PluginRecord, Registry
from fv_core.plugins.reference import resolve_reference
from fv_core.plugins.source import source_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One error, and the line of the plugin's source that raised it; "" where none did."""

    error: FvError
    place: str = ""

    def lines(self) -> Iterator[str]:
        where = f" ({self.place})" if self.place else ""
        yield f"{self.error.code} {self.error.message}{where}"
        yield f"      {self.error.remedy}"

    def to_json(self) -> dict[str, object]:
        return {**self.error.to_json(), "place": self.place or None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A plugin folder that has been checked: its plugins, the cards of those that load, and what is wrong."""

    records: tuple[PluginRecord, ...]
    cards: tuple[ModelCard, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What one gate found on one card; `figure` counts what went wrong among `of`."""

    model: str
    gate: str
    state: str
    figure: int
    of: int
    counted: str
    detail: str

    @property
    def failed(self) -> bool:
        return self.state != "passed"

    def line(self) -> str:
        why = f": {self.figure} of {self.of} {self.counted}; {self.detail}" if self.failed else ""
        return f"{self.model} gate {self.gate} {self.state}{why}"


def check_source(folder: Path) -> Source:
    """The plugins in `folder`, loaded from there before any installed copy, and everything that is wrong with them.

    Raises:
        PluginError: FV119, it is not the folder of a plugin.
    """
    registry = Registry(source_records(folder))
    for place in (folder / "src", folder):
        sys.path.insert(0, str(place))
    importlib.invalidate_caches()
    errors: list[FvError] = []
    for record in registry.records():
        errors += registry.findings(record.name) or resolve_plugin(registry.load(record.name))
    return Source(
        records=registry.records(),
        cards=tuple(registry.cards()),
        findings=tuple(Finding(error=error, place=_place(error, folder)) for error in errors),
    )


def run_gates(cards: Iterable[ModelCard]) -> Iterator[Gate]:
    """The gates of the conformance kit on every card that needs no download, on the CPU."""
    from fv_core.parity.suite import Suite  # loads torch
    from fv_core.parity.trial import Trial

    for card in cards:
        if card.checkpoint is None:
            with Trial(card, device="cpu") as trial:
                for result in Suite(trial).results():
                    yield Gate(model=card.model_id, **asdict(result))


def resolve_plugin(plugin: LoadedPlugin) -> list[FvError]:
    """Every reference of the plugin's cards and interceptors that does not resolve, every loop that cannot be built."""
    found = [error for card in plugin.cards for error in resolve_card(card)]
    return found + [error for spec in plugin.interceptors for error in resolve_interceptor(spec)]


def resolve_card(card: ModelCard) -> list[FvError]:
    """FV105 for each reference that does not resolve, FV122 for a prediction of memory that fails; FV202, FV204, FV206
    and FV221 for what loops refuse.
    """
    from fv_core.runtime.estimate import check_predictions
    from fv_core.runtime.loops import build_loop  # loops load torch
    from fv_core.runtime.requests.params import build_loops

    references = [
        (f"{card.model_id} component {name}", reference)
        for name, spec in card.components.items()
        for reference in (spec.load, spec.activation, spec.convert)
        if reference
    ]
    references += [(card.model_id, card.caches)] if card.caches else []
    if card.parity is not None:
        named = [reference for reference in (card.parity.runner, card.parity.probes) if reference]
        references += [(f"{card.model_id} parity", reference) for reference in named]
    found = list(_unresolved(references)) or list(_raised(partial(check_predictions, card)))
    loops = [error for loop_id in card.loops for error in _raised(partial(build_loop, card, loop_id))]
    return found + (loops or list(_raised(partial(build_loops, card))))


def resolve_interceptor(spec: InterceptorSpec) -> list[FvError]:
    """FV105 for each reference that does not resolve."""
    owner = f"interceptor {spec.id}"
    return list(_unresolved([(owner, spec.params), (owner, spec.factory)]))


def _unresolved(references: Sequence[tuple[str, str]]) -> Iterator[FvError]:
    for owner, reference in references:
        yield from _raised(partial(resolve_reference, reference, owner=owner))


def _raised(call: Callable[[], object]) -> Iterator[FvError]:
    try:
        call()
    except FvError as error:
        yield error


def _place(error: FvError, folder: Path) -> str:
    """File and line of the last frame inside `folder`."""
    frames = traceback.extract_tb(error.__cause__.__traceback__) if error.__cause__ else []
    inside = [frame for frame in frames if frame.filename.startswith(f"{folder}/")]
    cause = error.__cause__
    if isinstance(cause, SyntaxError) and str(cause.filename).startswith(f"{folder}/"):
        return f"{cause.filename}:{cause.lineno}"
    return f"{inside[-1].filename}:{inside[-1].lineno}" if inside else ""
