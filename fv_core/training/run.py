"""A training from its file to its result: what `fv train` and `fv_core.train` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fv_core.request import CancelScope
from fv_core.training.config import load_config
from fv_core.training.plan import TrainPlan, plan_of
from fv_core.training.ranks import Ranks
from fv_core.training.setup import set_up
from fv_core.training.trainer import Observer, RunResult, Trainer


def train(
    path: str | Path,
    *,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    resume: str | None = None,
    observer: Observer | None = None,
    cancel: CancelScope | None = None,
) -> RunResult:
    """Trains what a TOML file sets.

    Args:
        overrides: of its settings, {"train.steps": 200} or ["train.steps=200"].
        resume: `latest`, a step or a checkpoint's path; None begins anew.
        observer: is told each step.
        cancel: ends the run after the step at work, with a checkpoint.

    Raises:
        TrainError: FV701 a setting, FV702 the checkpoint, FV703 to FV705 the training itself.
        FvError: the model cannot be loaded. Cancelled: FV510.
    """
    file = Path(path)
    config = load_config(file, overrides)
    with Ranks.from_environment() as ranks:
        setup = set_up(config, ranks=ranks.count, folder=file.parent)
        with setup.engine:
            return Trainer(config, setup, ranks=ranks, observer=observer, cancel=cancel).fit(resume)


def plan(path: str | Path, *, overrides: Mapping[str, Any] | Sequence[str] = ()) -> TrainPlan:
    """What a training would do: takes the gradient of its first step and no step.

    Raises: as `train`.
    """
    file = Path(path)
    config = load_config(file, overrides)
    setup = set_up(config, folder=file.parent)
    with setup.engine:
        return plan_of(config, setup)
