"""kill -9 under mixed load, at random moments and at chosen ones: every accepted job ends with its bytes alone.

At most the longer of one step and `every_s` is run twice, and each chunk is emitted once: it is told by one process at
most, and who takes a job up finds those that were recorded.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from fv_core import Engine, Request
from fv_core.runtime.snapshots.job_store import JobStore

SCRIPT = Path(__file__).with_name("crashing.py")
_SCRIPT = runpy.run_path(str(SCRIPT))
MIXED, FEW, EVERY_S, POINTS = (_SCRIPT[name] for name in ("MIXED", "FEW", "EVERY_S", "POINTS"))
Alone = Callable[[list[Request]], dict[str, str]]
named, hashed = _SCRIPT["named"], _SCRIPT["hashed"]


@dataclass(frozen=True, kw_only=True)
class Step:
    life: int
    node: str
    step: int
    seconds: float


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory, soak: bool) -> Path:
    """The folder in which processes were killed, at random moments that often."""
    folder = tmp_path_factory.mktemp("crashed")
    done = subprocess.run(
        [sys.executable, SCRIPT, str(folder), "40" if soak else "3"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def alone() -> Alone:
    """The hashes of requests by themselves, twice each: of the clip, and of its chunks together."""
    torch.set_num_threads(1)
    with Engine(device="cpu") as engine:
        known = {named(one): hashed(engine.run(one).frames) for one in MIXED}
    return lambda requests: {named(one): " ".join([known[named(one)]] * 2) for one in requests}


def steps(path: Path) -> list[Step]:
    rows = [line.split() for line in path.read_text().splitlines()]
    return [
        Step(life=int(life), node=node, step=int(step), seconds=float(seconds))
        for life, node, step, seconds in rows
    ]


def repeated(folder: Path) -> tuple[float, float]:
    """The most seconds of steps that a job took again after a kill, and the longest step of any."""
    most = longest = 0.0
    for path in (folder / "steps").iterdir():
        taken: dict[tuple[str, int], float] = {}
        lives: dict[int, list[Step]] = defaultdict(list)
        for one in steps(path):
            lives[one.life].append(one)
        for _, again in sorted(lives.items()):
            most = max(most, sum(taken.get((one.node, one.step), 0.0) for one in again))
            taken |= {(one.node, one.step): one.seconds for one in again}
            longest = max(longest, *(one.seconds for one in again))
    return most, longest


def check_chunks(folder: Path) -> int:
    """How many chunks were told, each once; those that were not were found, and all have the same bytes."""
    count = 0
    for path in (folder / "chunks").iterdir():
        rows = [line.split() for line in path.read_text().splitlines()]
        told = [int(index) for _, how, index, _ in rows if how == "told"]
        seen = {(int(index), frames) for _, _, index, frames in rows}
        assert len(told) == len(set(told)), path.name
        assert sorted(index for index, _ in seen) == list(range(len(seen))), path.name
        count += len(told)
    return count


def check(folder: Path, expected: dict[str, str]) -> int:
    assert {path.name: path.read_text() for path in (folder / "done").iterdir()} == expected
    assert JobStore(folder / "jobs").jobs() == ()
    assert sorted(path.name for path in (folder / "jobs").iterdir()) == [".fv-jobs", ".lock"]
    return check_chunks(folder)


def test_kills_at_random_moments(
    crashed: Path, soak: bool, alone: Alone, record_property: Callable[[str, object], None]
) -> None:
    folder, kills = crashed / "random", int((crashed / "killed").read_text())
    assert kills >= (35 if soak else 2)
    chunks = check(folder, alone(MIXED))
    most, longest = repeated(folder)
    assert most <= max(EVERY_S, longest)
    record_property("kills", kills)
    record_property("chunks told, each once", chunks)
    record_property("most seconds repeated", most)
    record_property("seconds allowed", max(EVERY_S, longest))


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point(point: str, crashed: Path, alone: Alone) -> None:
    check(crashed / point, alone(FEW))
    most, longest = repeated(crashed / point)
    assert most <= longest  # every step was stored
