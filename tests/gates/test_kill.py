"""kill -9 at random moments under mixed load: every accepted job ends with the bytes that it has alone."""

from __future__ import annotations

import os
import random
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import torch

from fv_core import Engine
from fv_core.runtime.snapshots.job_store import JobStore

SCRIPT = Path(__file__).with_name("crashing.py")
_SCRIPT = runpy.run_path(str(SCRIPT))
REQUESTS, told = _SCRIPT["REQUESTS"], _SCRIPT["told"]


def start(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    return process


def test_every_accepted_job_ends_with_its_bytes(tmp_path: Path, soak: bool) -> None:
    rng = random.Random(0)
    kills = 0
    for _ in range(40 if soak else 2):
        process = start(tmp_path)
        try:
            process.wait(timeout=rng.uniform(0.05, 1.2))
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert start(tmp_path).wait() == 0
    assert kills
    assert JobStore(tmp_path / "jobs").jobs() == ()
    torch.set_num_threads(1)
    with Engine(device="cpu") as engine:
        alone = {f"{one.seed}-{str(one.model).replace('/', '-')}": told(engine.run(one)) for one in REQUESTS}
    assert {path.name: path.read_text() for path in (tmp_path / "done").iterdir()} == alone
