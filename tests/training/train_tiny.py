"""A run in a process of its own: FOLDER SETTINGS KILL [RESUME]. It kills itself after `step N`, or while it saves N."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch

import fv_core.training.checkpoint as checkpoint
from fv_core.testing.training import tiny_run
from fv_core.training.ranks import Ranks
from fv_core.training.trainer import Trainer


def main(folder: str, settings: str, kill: str, resume: str | None = None) -> None:
    torch.set_num_threads(1)
    force, (when, _, number) = checkpoint._force, kill.partition(" ")

    def dying(path: Path) -> None:
        if when == "save" and path.name == "weights.safetensors" and f"{int(number):08d}" in path.parent.name:
            os.kill(os.getpid(), signal.SIGKILL)
        force(path)

    checkpoint._force = dying
    with Ranks.from_environment() as ranks:
        made = tiny_run(Path(folder), ranks=ranks, **json.loads(settings))
        with made.setup.engine:
            save = Trainer.save

            def saved(trainer: Trainer) -> None:
                save(trainer)
                if when == "step" and trainer.state.step == int(number):
                    os.kill(os.getpid(), signal.SIGKILL)

            Trainer.save = saved  # type: ignore[method-assign,assignment]
            made.fit(resume)


main(*sys.argv[1:])
