"""What is known of one plugin: from metadata before it is imported, and what it brought once it was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fv_core.card import ModelCard
from fv_core.errors import FvError

if TYPE_CHECKING:
    from fv_core.extend import InterceptorSpec, RewardSpec, TrainingMethodSpec


class PluginState(StrEnum):
    """How far a plugin has come.

    discovered: known by its metadata, not imported. ready: loaded, all its records checked.
    blocked: left out by `FV_PLUGINS`. conflict: another distribution claims its name.
    incompatible: made for another fv-core or another API. broken: it does not import, or a hook is wrong.
    invalid: a record breaks a rule.
    """

    DISCOVERED = "discovered"
    READY = "ready"
    BLOCKED = "blocked"
    CONFLICT = "conflict"
    INCOMPATIBLE = "incompatible"
    BROKEN = "broken"
    INVALID = "invalid"

    @property
    def works(self) -> bool:
        """Whether nothing is known against the plugin."""
        return self in (PluginState.DISCOVERED, PluginState.READY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One record that a plugin brings: `kind` is "card", "interceptor", "training method" or "reward"."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """One entry point of group `fv`. `name` is the namespace of its ids, `module` the package to import.

    Args:
        location: the folder it is installed in, of an editable install the folder of its source.
        code: registered error code of a state that does not work, else "".
        reason: why it is in that state, every finding in a line of its own; for a plugin that works, what the
            user should know.
        remedy: what to do about the reason.
        provides: what it brought when it was loaded; empty before.
    """

    name: str
    module: str
    dist: str
    version: str
    location: str = ""
    editable: bool = False
    state: PluginState = PluginState.DISCOVERED
    code: str = ""
    reason: str = ""
    remedy: str = ""
    provides: tuple[Offer, ...] = ()

    def __str__(self) -> str:
        return f"{self.dist} {self.version}"

    @property
    def title(self) -> str:
        """The plugin as errors name it: entry point, distribution, version, location."""
        place = f", {'editable, ' if self.editable else ''}{self.location}" if self.location else ""
        return f"plugin {self.name} ({self}{place})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlugin:
    """What came of loading one plugin: all of its records, or every finding and none of them."""

    record: PluginRecord
    cards: tuple[ModelCard, ...] = ()
    interceptors: tuple[InterceptorSpec, ...] = ()
    training_methods: tuple[TrainingMethodSpec, ...] = ()
    rewards: tuple[RewardSpec, ...] = ()
    findings: tuple[FvError, ...] = ()
