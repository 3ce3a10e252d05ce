"""What is known of one plugin: from metadata before it is imported, and what it brought once it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fv_core.card import ModelCard

if TYPE_CHECKING:
    from fv_core.extend import InterceptorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """One entry point of group `fv`. `name` is the namespace of its ids, `module` the package to import."""

    name: str
    module: str
    dist: str
    version: str

    def __str__(self) -> str:
        return f"{self.dist} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlugin:
    """A plugin whose records have all been checked."""

    cards: tuple[ModelCard, ...]
    interceptors: tuple[InterceptorSpec, ...]
