"""Resuming is bit-exact (I1), and what a killed process leaves of a checkpoint is none (I3)."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import fv_core.training.checkpoint as checkpoint
import fv_core.training.trainer as trainer_module
from fv_core.errors import Cancelled, TrainError
from fv_core.request import CancelScope
from fv_core.training.checkpoint import complete_checkpoints, find_checkpoint
from fv_core.training.generators import generator_states, restore_generators
from fv_core.training.runlog import read_metrics
from fv_core.training.trainer import Trainer

Make = Callable[..., Trainer]
SCRIPT = Path(__file__).with_name("train_tiny.py")
WHOLE: dict[str, dict[str, Any]] = {
    "method": {"components": ["denoiser", "text"]},
    "save": {"every": 1, "keep": 3},
}
TRAIN = {"steps": 8, "ema": 0.9, "warmup": 3, "decay": 0.5, "accumulate": 2}


def launch(folder: Path, *resume: str, kill: str = "") -> subprocess.CompletedProcess[str]:
    """The run in a process of its own."""
    command = [sys.executable, str(SCRIPT), str(folder), json.dumps({**WHOLE, "train": TRAIN}), kill, *resume]
    return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)


def files(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.stem: load_file(path) for path in sorted(folder.glob("*.safetensors"))}


def equal(one: dict[str, dict[str, torch.Tensor]], other: dict[str, dict[str, torch.Tensor]]) -> bool:
    assert {name: set(tensors) for name, tensors in one.items()} == {n: set(t) for n, t in other.items()}
    return all(
        torch.equal(value, other[name][key]) for name, own in one.items() for key, value in own.items()
    )


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped, and saved nothing before its end."""
    from fv_core.testing.training import tiny_run

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("straight")
    trainer = tiny_run(folder, method=WHOLE["method"], train=TRAIN)
    with trainer.setup.engine:
        trainer.fit()
    return complete_checkpoints(folder)[8]


def test_a_killed_run_goes_on_in_a_new_process_to_the_same_bits(tmp_path: Path, straight: Path) -> None:
    """I1 and I3: killed after a step, then between two files of a checkpoint; saving each step has changed nothing."""
    for kill, resume, done in (("step 3", (), 3), ("save 6", ("latest",), 5)):
        killed = launch(tmp_path, *resume, kill=kill)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert max(complete_checkpoints(tmp_path)) == done
    resumed = launch(tmp_path, "latest")
    assert resumed.returncode == 0, resumed.stderr
    assert equal(files(complete_checkpoints(tmp_path)[8]), files(straight))
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not list(tmp_path.glob("checkpoints/.*")), "what the kill left is removed"


@pytest.mark.parametrize("lost", ["nothing", "average", "moments", "step"])
def test_what_a_checkpoint_would_lose_is_seen(make: Make, straight: Path, lost: str) -> None:
    """The mutants of I1: resuming without the average, the optimizer's memory, or the step."""
    cancel = CancelScope()
    first = make(**WHOLE, train=TRAIN)
    stopped = Trainer(
        first.config,
        first.setup,
        cancel=cancel,
        observer=lambda told: cancel.cancel() if told.step == 4 else None,
    )
    with pytest.raises(Cancelled):
        stopped.fit()
    second = make(**WHOLE, train=TRAIN)
    second.restore(find_checkpoint(first.run, "4"))
    role = second.state.roles["student"]
    if lost == "average":
        assert role.average is not None
        role.average = [one.detach().clone() for one in role.values()]
    elif lost == "moments":
        role.optimizer.state.clear()
    elif lost == "step":
        second.state.step -= 1
    second.fit()
    assert equal(files(complete_checkpoints(first.run)[8]), files(straight)) is (lost == "nothing")


def test_a_checkpoint_written_in_place_is_none_after_a_kill(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of I3: without a folder of its own, the one before would be gone."""
    trainer = make(save={"every": 1}, train={"steps": 2})
    trainer.fit()
    whole = complete_checkpoints(trainer.run)[2]

    def failing(path: Path) -> None:
        if path.name == "state.json":
            raise OSError(28, "no space left")

    monkeypatch.setattr(checkpoint, "_force", failing)
    with pytest.raises(OSError, match="no space"):
        trainer.save()
    assert complete_checkpoints(trainer.run)[2] == whole and not list(trainer.run.glob("checkpoints/.*"))
    (whole / "COMPLETE").unlink()  # what writing in place would leave
    with pytest.raises(TrainError, match=r"FV702 .*'2': is no whole checkpoint"):
        find_checkpoint(trainer.run, "2")


def test_the_newest_stay(make: Make) -> None:
    trainer = make(save={"every": 1, "keep": 2}, train={"steps": 5})
    trainer.fit()
    assert list(complete_checkpoints(trainer.run)) == [4, 5]
    assert find_checkpoint(trainer.run, "latest").name == "00000005"
    assert find_checkpoint(trainer.run, str(trainer.run / "checkpoints" / "00000004")).name == "00000004"
    with pytest.raises(TrainError, match="legal: latest, 4, 5"):
        find_checkpoint(trainer.run, "3")


@pytest.mark.parametrize("file", ["weights.safetensors", "state.json", "optimizer.safetensors"])
def test_a_damaged_checkpoint_is_refused(make: Make, file: str) -> None:
    trainer = make()
    trainer.fit()
    found = find_checkpoint(trainer.run, "latest")
    (found / file).write_bytes((found / file).read_bytes()[:40])
    with pytest.raises(TrainError, match=r"FV702 .*is damaged"):
        make().fit("latest")


def test_a_checkpoint_of_other_components_is_refused(make: Make) -> None:
    make().fit()
    with pytest.raises(TrainError, match=r"FV702 .*method\.components was .* and is"):
        make(**WHOLE).fit("latest")
    with pytest.raises(TrainError, match=r"FV702 .*is of another run: .*student/text"):
        make(method=WHOLE["method"], resume={"override": True}, train={"steps": 8}).fit("latest")


@pytest.mark.parametrize("file", ["weights", "average", "optimizer"])
@pytest.mark.parametrize("harm", ["missing", "renamed", "extra", "shape"])
def test_wrong_tensors_of_a_checkpoint_are_refused(make: Make, file: str, harm: str) -> None:
    """A moment that is missing would begin at zero, a single number be spread over a whole matrix, and nobody told."""
    trainer = make(train={"ema": 0.5})
    trainer.fit()
    path = find_checkpoint(trainer.run, "latest") / f"{file}.safetensors"
    tensors = load_file(path)
    key = next(name for name, one in tensors.items() if one.ndim == 2)
    of = key.rpartition("/")[0] if file == "optimizer" else key
    whole = {name: one for name, one in tensors.items() if name.startswith(of)}
    if harm in ("missing", "renamed"):
        tensors = {name: one for name, one in tensors.items() if name not in whole}
    if harm in ("renamed", "extra"):
        tensors |= {name.replace(of, f"{of}.base"): one.clone() for name, one in whole.items()}
    if harm == "shape":
        tensors[key] = tensors[key][:1, :1].contiguous()
    save_file(tensors, path)
    with pytest.raises(TrainError, match=r"FV702 .*is of another run"):
        make(train={"ema": 0.5}).restore(path.parent)


def test_global_generators_come_back() -> None:
    states = json.loads(json.dumps(generator_states()))
    drawn = (random.random(), np.random.rand(), float(torch.rand(())))
    restore_generators(states)
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == drawn


def test_training_draws_from_no_global_generator(make: Make) -> None:
    before = generator_states()
    make(data={"caption_dropout": 0.5}).fit()
    assert generator_states() == before


def test_a_longer_run_goes_on(make: Make, tmp_path: Path) -> None:
    make(train={"steps": 2}).fit()
    result = make(train={"steps": 6}).fit("latest")
    assert result.steps == 6
    copy: Any = shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert list(complete_checkpoints(Path(copy))) == [2, 6]


def test_a_run_is_not_begun_where_another_is(make: Make) -> None:
    first = make(train={"steps": 2})
    first.fit()
    with pytest.raises(
        TrainError, match=r"FV702 save.dir .*holds a run already, with checkpoints of the steps 2"
    ):
        make(train={"steps": 2}).fit()
    assert list(complete_checkpoints(first.run)) == [2]


def test_what_a_resumed_run_does_otherwise_is_told(make: Make) -> None:
    make(train={"steps": 2, "lr": 0.1}).fit()
    told: list[str] = []
    again = make(train={"steps": 3, "lr": 0.2}, resume={"override": True})
    Trainer(again.config, again.setup, note=told.append).fit("latest")
    assert told == ["goes on with other settings: train.lr was 0.1 and is 0.2"]


def test_the_model_is_written_once_at_the_end(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing it loads components that are not trained, which a run of a large model must not do at each checkpoint."""
    written: list[int] = []
    monkeypatch.setattr(
        trainer_module,
        "write_run_model",
        lambda run, instance, state, method, made: written.append(made.steps),
    )
    make(train={"steps": 3}, save={"every": 1}).fit()
    assert written == [3]
