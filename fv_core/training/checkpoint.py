"""Checkpoints of a run: folders that appear whole or not at all, named by their step.

A folder is written under another name, every file and the marker COMPLETE forced to the disk, then renamed. What a
killed process leaves is none that is looked at, and the one before it is as it was.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fv_core.errors import TrainError

MARKER: Final = "COMPLETE"
_STATE: Final = "state.json"
_FOLDER: Final = "checkpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a checkpoint holds: tensors by file and name, and what is no tensor."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    facts: Mapping[str, Any]


def write_checkpoint(run: Path, step: int, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Writes the checkpoint of a step and removes all but the newest `keep`.

    Raises:
        OSError: it cannot be written; those that were there are as they were.
    """
    folder = run / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    final, temporary = folder / f"{step:08d}", folder / f".{step:08d}-{secrets.token_hex(4)}"
    temporary.mkdir()
    try:
        for name, tensors in checkpoint.tensors.items():
            path = temporary / f"{name}.safetensors"
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path)
            _force(path)
        for name, text in {
            _STATE: json.dumps(checkpoint.facts, indent=1, sort_keys=True),
            MARKER: "",
        }.items():
            (temporary / name).write_text(text)
            _force(temporary / name)
        _force(temporary)
        if final.exists():  # of the same step, from a run that was resumed before it
            _remove(final)
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _force(folder)
    _tidy(folder, keep)
    return final


def complete_checkpoints(run: Path) -> dict[int, Path]:
    """The checkpoints of a run by step, oldest first."""
    found = {int(marker.parent.name): marker.parent for marker in run.glob(f"{_FOLDER}/[0-9]*/{MARKER}")}
    return dict(sorted(found.items()))


def find_checkpoint(run: Path, wanted: str) -> Path:
    """The checkpoint that `latest`, a step or a path names.

    Raises:
        TrainError: FV702, there is none.
    """
    steps = complete_checkpoints(run)
    if wanted == "latest" and steps:
        return steps[max(steps)]
    if wanted.isdigit() and int(wanted) in steps:
        return steps[int(wanted)]
    if (Path(wanted) / MARKER).is_file():
        return Path(wanted)
    raise TrainError(
        "FV702",
        name="resume",
        value=wanted,
        rule=f"is no whole checkpoint of {run}",
        legal=", ".join(["latest", *map(str, steps)])
        if steps
        else "none: the folder holds no whole checkpoint",
        remedy="Name one of these, or begin anew without --resume.",
    )


def check_new(run: Path) -> None:
    """Raises:
    TrainError: FV702, the folder has checkpoints: those of a new run would be taken for older ones and removed.
    """
    if steps := complete_checkpoints(run):
        raise TrainError(
            "FV702",
            name="save.dir",
            value=str(run),
            rule=f"holds a run already, with checkpoints of the steps {', '.join(map(str, steps))}",
            remedy="Go on with it by --resume latest, give another save.dir, or remove the folder.",
        )


def read_checkpoint(folder: Path) -> Checkpoint:
    """Raises:
    TrainError: FV702, a file is missing or damaged.
    """
    try:
        facts = json.loads((folder / _STATE).read_text())
        tensors = {path.stem: load_file(path) for path in sorted(folder.glob("*.safetensors"))}
    except (OSError, ValueError, SafetensorError) as error:
        raise TrainError(
            "FV702",
            name=str(folder),
            rule=f"is damaged: {error}",
            remedy="Resume an earlier checkpoint of the run.",
        ) from error
    return Checkpoint(tensors=tensors, facts=facts)


def _tidy(folder: Path, keep: int) -> None:
    for path in list(complete_checkpoints(folder.parent).values())[:-keep]:
        _remove(path)
    for left in folder.glob(".*"):  # of processes that were killed
        shutil.rmtree(left, ignore_errors=True)


def _remove(path: Path) -> None:
    (path / MARKER).unlink(missing_ok=True)  # first: what a kill leaves of it must not look whole
    shutil.rmtree(path)


def _force(path: Path) -> None:
    """Waits until it is on the disk; of a folder, its names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
