"""Whether a checkpoint is of the run that wants to go on from it, and its way back into the run's state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fv_core.errors import TrainError
from fv_core.training.checkpoint import Checkpoint
from fv_core.training.state import TrainState

FREE: Final = ("save", "validate", "resume", "train.steps", "data.cache", "log")
"""Settings that may differ: where and how often is saved and shown, how far the run goes, where features and figures
go."""


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is set otherwise than in the checkpoint, by dotted name, free settings included."""
    flat_before, flat_now = dict(_flat(before)), dict(_flat(now))
    names = {**flat_before, **flat_now}
    return {
        name: (flat_before.get(name), flat_now.get(name))
        for name in names
        if flat_before.get(name) != flat_now.get(name)
    }


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], *, override: bool) -> str:
    """What differs of the settings that decide the weights, in words.

    Raises:
    TrainError: FV702, a setting that decides the weights differs and `override` is not set.
    """
    other = {name: pair for name, pair in differences(before, now).items() if not _is_free(name)}
    told = "; ".join(f"{name} was {was!r} and is {now!r}" for name, (was, now) in other.items())
    if other and not override:
        raise TrainError(
            "FV702",
            name="resume",
            rule=f"would go on with other settings: {told}",
            remedy="Set them as they were, or go on with these all the same by resume.override=true.",
        )
    return told


def restored(state: TrainState, checkpoint: Checkpoint, folder: Path) -> None:
    """Brings the state back.

    Raises:
        TrainError: FV702, the checkpoint lacks something of it, or has it in another shape.
    """
    try:
        state.restore(checkpoint.tensors, checkpoint.facts)
    except (KeyError, RuntimeError) as error:
        raise TrainError(
            "FV702",
            name=str(folder),
            rule=f"is of another run: {error}",
            remedy="Resume a checkpoint of this model, method and set of components.",
        ) from error


def _is_free(name: str) -> bool:
    return any(name == free or name.startswith(f"{free}.") for free in FREE)


def _flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [
            pair for key, one in value.items() for pair in _flat(one, f"{name}.{key}" if name else str(key))
        ]
    return [(name, value)]
