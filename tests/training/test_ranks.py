"""Two processes come to what one comes to (I4): draws of a sample go by its number in the step, on whichever rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fv_core.testing.training import tiny_run
from fv_core.training.checkpoint import complete_checkpoints
from fv_core.training.runlog import read_metrics

SCRIPT = Path(__file__).with_name("train_tiny.py")
SETTINGS: dict[str, Any] = {"method": {"components": ["denoiser", "text"]}, "train": {"steps": 5, "batch": 2}}


def run_two(folder: Path) -> None:
    """Both ranks, each a process on one thread."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "localhost:0", str(SCRIPT), str(folder), json.dumps(SETTINGS), "",
    ]  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def run_one(folder: Path) -> None:
    torch.set_num_threads(1)
    trainer = tiny_run(folder, **{**SETTINGS, "train": {**SETTINGS["train"], "batch": 4}})
    with trainer.setup.engine:
        trainer.fit()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("ranks")
    run_one(root / "one")
    run_two(root / "two")
    return root / "one", root / "two"


def test_two_ranks_equal_one(folders: tuple[Path, Path]) -> None:
    one, two = ([line["loss"] for line in read_metrics(folder)] for folder in folders)
    assert one == pytest.approx(two, abs=1e-6)
    weights = [load_file(complete_checkpoints(folder)[5] / "weights.safetensors") for folder in folders]
    assert all(torch.allclose(value, weights[1][name], atol=1e-6) for name, value in weights[0].items())


def test_only_the_first_rank_writes(folders: tuple[Path, Path]) -> None:
    assert [line["step"] for line in read_metrics(folders[1])] == [1, 2, 3, 4, 5]


def test_numbers_of_the_own_rank_alone_give_other_losses(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    """The mutant of I4: every rank counts its samples from 0."""
    from dataclasses import replace

    trainer = tiny_run(tmp_path, **{**SETTINGS, "train": {**SETTINGS["train"], "batch": 4, "steps": 1}})
    original = trainer.setup.method.loss

    def loss(role: str, batch: Any) -> Any:
        return original(role, replace(batch, numbers=[number % 2 for number in batch.numbers]))

    trainer.setup.method.loss = loss  # type: ignore[method-assign]
    with trainer.setup.engine:
        trainer.fit()
    assert read_metrics(tmp_path)[0]["loss"] != pytest.approx(read_metrics(folders[0])[0]["loss"], abs=1e-6)
