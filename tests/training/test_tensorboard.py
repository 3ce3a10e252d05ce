"""TensorBoard reads back what the run told, once each, resumed or not; without it a run that wants it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import fv_core.training.tensorboard as tensorboard
from fv_core.errors import TrainError
from fv_core.training.runlog import read_metrics
from fv_core.training.tensorboard import FOLDER
from fv_core.training.trainer import Trainer

Make = Callable[..., Trainer]
LOG = ["tensorboard"]


def read(run: Path, tag: str) -> dict[int, float]:
    """A scalar's values by step, as TensorBoard itself reads them."""
    events = EventAccumulator(str(run / FOLDER)).Reload()
    scalars = events.Scalars(tag)
    assert len({one.step for one in scalars}) == len(scalars)
    return {one.step: one.value for one in scalars}


def test_event_files_hold_each_figure_of_each_step(make: Make) -> None:
    trainer = make(train={"steps": 3}, log=LOG)
    trainer.fit()
    lines = read_metrics(trainer.run)
    for name in ("loss", "lr", "grad_norm", "samples_per_second"):
        told = {int(line["step"]): pytest.approx(line[name], rel=1e-6) for line in lines}
        assert read(trainer.run, f"student/{name}") == told and len(told) == 3


def test_steps_that_are_taken_again_count_once(make: Make) -> None:
    first = make(train={"steps": 4}, save={"every": 2}, log=LOG)
    first.fit()
    again = make(train={"steps": 4, "lr": 0.5}, save={"every": 2}, resume={"override": True}, log=LOG)
    again.fit("2")
    found = read(again.run, "student/lr")
    assert found == {1: pytest.approx(0.01), 2: pytest.approx(0.01), 3: 0.5, 4: 0.5}


def test_without_tensorboard_only_a_run_that_wants_it_is_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(TrainError, match=r"FV706 .*tensorboard.*pip install 'fv-core\[train\]'"):
        make(log=LOG)
    trainer = make()
    trainer.fit()
    assert not (trainer.run / FOLDER).exists()


@pytest.mark.parametrize("log", ["tensorboard", ["wandb"], [1]])
def test_another_log_is_refused(make: Make, log: object) -> None:
    with pytest.raises(TrainError, match=r"FV701 .*log.*tensorboard"):
        make(log=log)
