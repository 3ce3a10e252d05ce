"""The methods and rewards that there are: fv's own under bare ids, those of plugins under theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fv_core.card import ModelCard
from fv_core.card.placement import nature
from fv_core.errors import TrainError
from fv_core.extend import RewardSpec, TrainingMethodSpec
from fv_core.loop.outputs import misfit
from fv_core.plugins import default_registry
from fv_core.plugins.reference import resolve_reference
from fv_core.runtime.faults import as_fv_error
from fv_core.training.contract import Method, Reward
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


def made_rewards(names: Sequence[str], prompts: Sequence[str]) -> dict[str, Reward]:
    """The rewards of these names, each of which can judge all of the prompts.

    Raises:
        TrainError: FV701, there is none of a name, or it cannot judge a prompt: tried with a black clip, so that it is
            found out before the first step.
        FvError: FV502, it fails.
    """
    made: dict[str, Reward] = {}
    for name in names:
        spec = find_reward(name)
        if "video" not in spec.artifacts:
            raise illegal("validate.rewards", name, f"judges {', '.join(spec.artifacts)} and no video")
        factory = resolve_reference(spec.factory, owner=f"reward {name}")
        try:
            made[name] = factory()
        except Exception as error:
            raise as_fv_error(error, f"reward {name}") from error
        for prompt in prompts:
            try:
                judged(name, made[name], np.zeros((9, 64, 64, 3), np.uint8), prompt)
            except ValueError as error:
                raise illegal("validate.prompts", prompt, f"cannot be judged by {name}: {error}") from error
    return made


def judged(name: str, reward: Reward, frames: NDArray[np.uint8], prompt: str) -> dict[str, float]:
    """What a reward says of a clip, finite numbers by name.

    Raises:
        ValueError: the prompt is none that it can judge. FvError: FV502, it fails, or says something else.
    """
    try:
        said: object = reward.score(frames, prompt)
    except ValueError:
        raise
    except Exception as error:
        raise as_fv_error(error, f"reward {name}") from error
    if not isinstance(said, Mapping) or not all(
        isinstance(key, str) and isinstance(figure, (int, float)) and math.isfinite(figure)
        for key, figure in said.items()
    ):
        raise misfit(
            f"what reward {name} says",
            found=repr(said),
            legal="finite numbers by name",
            remedy="Report it to the reward's author.",
        )
    return {key: float(figure) for key, figure in said.items()}


def check_loops(method: TrainingMethodSpec, card: ModelCard) -> None:
    """Raises:
    TrainError: FV704, the model has no loop that the method trains.
    """
    have = {nature(loop.semantics) for loop in card.loops.values()}
    if not have & set(method.loops):
        raise TrainError(
            "FV704",
            name="method.name",
            value=method.id,
            rule=f"trains loops of {', '.join(method.loops)}, of which {card.model_id} has none",
            legal=f"methods that train {', '.join(sorted(have))}",
            remedy="Choose another method or model: `fv train --list` has the methods.",
        )


def check_roles(name: str, method: Method) -> None:
    """Whether a method trains the roles that it is offered with. Loads what it trains.

    Raises:
        TrainError: FV704, it trains others.
    """
    spec, roles = find_method(name), tuple(method.roles())
    if roles != spec.roles:
        raise TrainError(
            "FV704",
            name=f"method {spec.id}",
            value=", ".join(roles),
            rule="are the roles that it trains, and not those that it is offered with",
            legal=", ".join(spec.roles),
            remedy="Report it to the method's author.",
        )
