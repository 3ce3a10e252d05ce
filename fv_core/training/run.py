"""A training from its file to its result: what `fv train` and `fv_core.train` do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fv_core.request import CancelScope
from fv_core.training.config import load_config
from fv_core.training.data.encoded import Filled
from fv_core.training.data.preparing import Note, prepare_data
from fv_core.training.plan import TrainPlan, plan_of
from fv_core.training.ranks import Ranks
from fv_core.training.setup import set_up
from fv_core.training.tables import illegal
from fv_core.training.trainer import Observer, RunResult, Trainer


def train(
    path: str | Path,
    *,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    resume: str | None = None,
    observer: Observer | None = None,
    note: Note | None = None,
    cancel: CancelScope | None = None,
) -> RunResult:
    """Trains what a TOML file sets.

    Args:
        overrides: of its settings, {"train.steps": 200} or ["train.steps=200"].
        resume: `latest`, a step or a checkpoint's path; None begins anew.
        observer: is told each step. note: is told, before the first one, what became of the data and
            what a resumed run does otherwise, in sentences.
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
            prepare_data(setup.data, Path(config.save.dir), ranks, note or (lambda text: None))
            trainer = Trainer(
                config,
                setup,
                ranks=ranks,
                observer=observer,
                note=note,
                cancel=cancel,
                command=_command(file, overrides, resume),
            )
            return trainer.fit(resume)


def _command(file: Path, overrides: Mapping[str, Any] | Sequence[str], resume: str | None) -> str:
    """What is typed to have this training."""
    if isinstance(overrides, Mapping):
        overrides = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    ending = () if resume is None else ("--resume", resume)
    return shlex.join(["fv", "train", str(file), *overrides, *ending])


def plan(path: str | Path, *, overrides: Mapping[str, Any] | Sequence[str] = ()) -> TrainPlan:
    """What a training would do: takes the gradient of its first step and no step.

    Raises: as `train`.
    """
    file = Path(path)
    config = load_config(file, overrides)
    setup = set_up(config, folder=file.parent)
    with setup.engine:
        return plan_of(config, setup)


def fill_cache(
    path: str | Path, *, overrides: Mapping[str, Any] | Sequence[str] = (), note: Note | None = None
) -> Filled:
    """Computes the latents and embeddings that a training needs and its cache has not, and trains nothing.

    Raises:
        TrainError: FV701, the training keeps none. Else as `train`.
    """
    file = Path(path)
    config = load_config(file, overrides)
    with Ranks.from_environment() as ranks:
        setup = set_up(config, ranks=ranks.count, folder=file.parent)
        with setup.engine:
            filled = prepare_data(setup.data, Path(config.save.dir), ranks, note or (lambda text: None))
    if filled is None:
        rule = "keeps no latents and embeddings: its method takes pixels, or its clips are drawn or have their own"
        raise illegal("data.cache", setup.table.cache, rule, legal="a folder, for data of pixels")
    return filled
