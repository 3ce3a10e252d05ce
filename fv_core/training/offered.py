"""The methods and rewards that there are: fv's own under bare ids, those of plugins under theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fv_core.card import ModelCard
from fv_core.errors import TrainError
from fv_core.extend import RewardSpec, TrainingMethodSpec
from fv_core.plugins import default_registry
from fv_core.training.tables import illegal, meant

METHODS: Final = {
    one.id: one
    for one in (
        TrainingMethodSpec(
            id="finetune",
            loops=("flow",),
            roles=("student",),
            factory="fv_core.training.methods.finetune:Finetune",
            summary="flow matching, whole weights or LoRA",
        ),
        TrainingMethodSpec(
            id="vae",
            loops=("vae",),
            roles=("autoencoder",),
            factory="fv_core.training.methods.vae:Vae",
            summary="the autoencoder, towards a codec that it is to learn",
        ),
    )
}
REWARDS: Final = {
    one.id: one
    for one in (
        RewardSpec(
            id="shapes",
            artifacts=("video",),
            factory="fv_core.training.rewards.shapes:Shapes",
            summary="whether a drawn shape is what the prompt asks for",
        ),
    )
}


def methods() -> Sequence[TrainingMethodSpec]:
    """All that are installed, fv's own first."""
    return (*METHODS.values(), *default_registry().training_methods())


def rewards() -> Sequence[RewardSpec]:
    """As `methods`."""
    return (*REWARDS.values(), *default_registry().rewards())


def find_method(name: str) -> TrainingMethodSpec:
    """The method that `[method] name` gives; loads its plugin alone.

    Raises:
        TrainError: FV701, there is none of this name.
        FvError: what keeps its plugin from working.
    """
    found = METHODS.get(name) or default_registry().find_training_method(name)
    if found is None:
        known = [one.id for one in methods()]
        raise illegal("method.name", name, f"is no method{meant(name, known)}", legal=", ".join(known))
    return found


def find_reward(name: str) -> RewardSpec:
    """As `find_method`, for one of `[validate] rewards`."""
    found = REWARDS.get(name) or default_registry().find_reward(name)
    if found is None:
        known = [one.id for one in rewards()]
        raise illegal("validate.rewards", name, f"is no reward{meant(name, known)}", legal=", ".join(known))
    return found


def check_loops(method: TrainingMethodSpec, card: ModelCard) -> None:
    """Raises:
    TrainError: FV704, the model has no loop that the method trains.
    """
    have = {loop.semantics.partition("/")[0].partition(".")[0] for loop in card.loops.values()}
    if not have & set(method.loops):
        raise TrainError(
            "FV704",
            name="method.name",
            value=method.id,
            rule=f"trains loops of {', '.join(method.loops)}, and {card.model_id} has those of {', '.join(sorted(have))}",
            remedy="Choose another method or model: `fv train --list` has the methods.",
        )
