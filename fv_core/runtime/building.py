"""A component out of its factory, with whatever escapes the factory told by the component's name."""

from __future__ import annotations

from pathlib import Path

import torch

from fv_core.card import ModelCard
from fv_core.errors import FvError, PluginError
from fv_core.loop import Component
from fv_core.plugins.reference import resolve_reference
from fv_core.runtime.faults import loading_fault
from fv_core.weights.checkpoint import CheckpointContext


def build_component(
    card: ModelCard,
    component_id: str,
    *,
    folder: Path | None,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    check_only: bool,
) -> Component:
    """The component of a card, with weights from a folder, or initialised from the seed where there is none.

    Args:
        check_only: compares the folder's files with the architecture; the module's weights then lie nowhere.

    Raises:
        PluginError: FV105 its factory does not resolve, FV120 it failed. WeightsError: as `ModelInstance.check`.
    """
    spec, name = card.components[component_id], component_name(card, component_id)
    factory = resolve_reference(spec.load, owner=f"{card.model_id} component {component_id}")
    context = CheckpointContext(
        spec,
        folder=folder,
        seed=seed,
        device=device,
        dtype=dtype if spec.dtype == "card" else getattr(torch, spec.dtype),
        check_only=check_only,
        component=component_id,
    )
    try:
        component: Component = factory(context)
    except FvError:
        raise
    except Exception as error:
        raise loading_fault(error, name, context.suspects()) from error
    return component


def component_name(card: ModelCard, component_id: str) -> str:
    """How a component is called where something is told of it."""
    return f"component {component_id} of {card.model_id}"


def not_its_own(name: str, other: str) -> PluginError:
    """FV123: a component came with tensors that another one has."""
    return PluginError(
        "FV123",
        name=name,
        rule=f"was made with tensors that are those of {other}",
        remedy="Its factory must make a module of its own each time, and fill that.",
    )
