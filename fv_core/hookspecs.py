"""The hooks a plugin may implement. They return data, take nothing and have no side effects.

A plugin package declares `fv_api = PLUGIN_API` in its `__init__` and marks its hooks with `hookimpl`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import pluggy

if TYPE_CHECKING:
    from fv_core.card import ModelCard
    from fv_core.extend import InterceptorSpec, RewardSpec, TrainingMethodSpec

PLUGIN_API: Final = 1
"""Raised with every incompatible change of these hooks or of the records they return."""

hookspec = pluggy.HookspecMarker("fv")
hookimpl = pluggy.HookimplMarker("fv")


@hookspec
def fv_cards() -> Iterable[ModelCard]:
    """The models of this plugin; ids are `<plugin>/<model>`."""
    raise AssertionError("specification only")


@hookspec
def fv_interceptors() -> Iterable[InterceptorSpec]:
    """The interceptors of this plugin; off until an engine names them."""
    raise AssertionError("specification only")


@hookspec
def fv_training_methods() -> Iterable[TrainingMethodSpec]:
    """The ways of training of this plugin, which `[method] name` names."""
    raise AssertionError("specification only")


@hookspec
def fv_rewards() -> Iterable[RewardSpec]:
    """What judges clips in this plugin, which `[validate] rewards` names."""
    raise AssertionError("specification only")
