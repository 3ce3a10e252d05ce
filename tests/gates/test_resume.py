"""The resume gate: a request snapshotted after any step and finished in a new process gives the same bits."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from fv_core import Clip, Engine, MediaChunk, OutputSpec, Request, StepDone
from fv_core.request import Numerics, RequestEvent
from fv_core.runtime.gain import Always

HERE = Path(__file__).parent

RUNS: dict[str, dict[str, Any]] = {
    "guided": {
        "steps": 3,
        "frames": 9,
        "size": (32, 16),
        "negative_prompt": "grey",
        "params": {"shift": 8.0},
    },
    "unguided": {"steps": 2, "guidance": 1.0, "prompt": "circle " * 600, "numerics": Numerics.REFERENCE},
    "short": {"steps": 1, "frames": 1, "numerics": Numerics.FAST},
    "OwnState": {"steps": 4},
    "GlobalState": {"steps": 4},
}
"""The last two are named after the interceptor that is enabled in them."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """An uninterrupted run: what it came to and what it told."""

    clip: Clip
    events: list[RequestEvent]

    @property
    def steps(self) -> list[list[Any]]:
        return [[event.node, event.step] for event in self.events if isinstance(event, StepDone)]

    @property
    def chunks(self) -> list[int]:
        return [event.index for event in self.events if isinstance(event, MediaChunk)]


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """What one snapshot came to in the other process, and what was told from there on."""

    latent: torch.Tensor
    frames: torch.Tensor
    steps: list[list[Any]]
    chunks: list[int]
    notes: list[str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Whole, list[Resumed]]]:
    """Each run whole, and resumed after every step (and before the first), all in one new process."""
    root = tmp_path_factory.mktemp("snapshots")
    whole = {name: _uninterrupted(name, root / name) for name in RUNS}
    command = [sys.executable, str(HERE / "resume_all.py"), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {
        name: (whole[name], [_result(path) for path in sorted((root / name).glob("*.result"))])
        for name in RUNS
    }


def _uninterrupted(name: str, folder: Path) -> Whole:
    folder.mkdir()
    keep = OutputSpec(keep=("latent",))
    facts: dict[str, Any] = {
        "prompt": "a red circle",
        "seed": 1,
        "size": (16, 16),
        "frames": 5,
        "guidance": 3.0,
    }
    events: list[RequestEvent] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        gate = importlib.import_module("gate_interceptors")
        extensions = [gate.spec(name)] if hasattr(gate, name) else []
        torch.set_num_threads(1)
        with Engine(["wan21/micro"], device="cpu", extensions=extensions, gain=Always()) as engine:
            job = engine.start(Request(**{**facts, **RUNS[name]}, output=keep), observer=events.append)
            while True:
                engine.snapshot(job).save(folder / f"{len(list(folder.iterdir())):02}.snapshot")
                if job.done:
                    return Whole(clip=engine.clip(job), events=events)
                job.step()


def _result(path: Path) -> Resumed:
    with safe_open(path, framework="pt") as file:
        told = json.loads(file.metadata()["told"])
        return Resumed(latent=file.get_tensor("latent"), frames=file.get_tensor("frames"), **told)


def same(whole: Whole, resumed: Resumed) -> bool:
    """Whether latent and frames are equal in every bit."""
    latent = whole.clip.tensors["latent"]
    assert latent.isfinite().all()
    return torch.equal(latent, resumed.latent) and np.array_equal(whole.clip.frames, resumed.frames.numpy())


@pytest.mark.parametrize("name", [name for name in RUNS if name != "GlobalState"])
def test_resumed_after_any_step_in_a_new_process_equals_uninterrupted(
    name: str, runs: dict[str, tuple[Whole, list[Resumed]]]
) -> None:
    whole, resumed = runs[name]
    assert len(resumed) == len(whole.steps) + 1
    assert {node for node, _ in whole.steps} >= {"encode", "denoise", "decode"}
    assert [taken_after for taken_after, each in enumerate(resumed) if not same(whole, each)] == []


@pytest.mark.parametrize("name", [name for name in RUNS if name != "GlobalState"])
def test_resumed_runs_tell_the_rest_of_the_steps_and_each_frame_once(
    name: str, runs: dict[str, tuple[Whole, list[Resumed]]]
) -> None:
    whole, resumed = runs[name]
    for taken_after, each in enumerate(resumed):
        assert each.steps == whole.steps[taken_after:]
        decoded = sum(node == "decode" and step > 1 for node, step in whole.steps[:taken_after])
        assert each.chunks == whole.chunks[decoded:]
        assert each.notes == list(whole.clip.used.adjusted)


def test_control_what_a_module_global_remembers_is_lost(runs: dict[str, tuple[Whole, list[Resumed]]]) -> None:
    whole, resumed = runs["GlobalState"]
    assert np.array_equal(whole.clip.frames, runs["OwnState"][0].clip.frames)
    assert [taken_after for taken_after, each in enumerate(resumed) if not same(whole, each)] != []
