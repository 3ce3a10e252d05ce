"""A run in a new process: ordered by one file, its bits told by another.

python -m fv_core.parity.again ORDER.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fv_core import codec
from fv_core.card import ModelCard
from fv_core.parity.bits import Bits, bits
from fv_core.parity.trial import Trial
from fv_core.request import Request
from fv_core.runtime.engine import Engine

_HASH_SEED = "4099"


def run_again(trial: Trial, request: Request) -> Bits | str:
    """The bits of a request in a new process with another hash seed; what that process said last where it failed."""
    weights = None if trial.weights is None else str(trial.weights)
    order = {
        "card": json.loads(trial.card.to_json()),
        "request": codec.encode(request),
        "engine": {"device": str(trial.engine.device), "dtype": trial.dtype, "weights": weights},
        "threads": torch.get_num_threads(),
    }
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    with TemporaryDirectory() as folder:
        file = Path(folder, "order.json")
        file.write_text(json.dumps(order))
        done = subprocess.run(
            [sys.executable, "-m", "fv_core.parity.again", str(file)],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": _HASH_SEED},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        told: dict[str, str] = json.loads(_answer(file).read_text())
        return told


def main(file: Path) -> None:
    """Runs what `file` orders and writes the bits beside it."""
    order = json.loads(file.read_text())
    torch.set_num_threads(order["threads"])
    card = ModelCard.from_json(json.dumps(order["card"]))
    request = codec.decode(Request, order["request"])
    with Engine([card], offload="none", **order["engine"]) as engine:
        _answer(file).write_text(json.dumps(bits(engine.run(request).tensors)))


def _answer(file: Path) -> Path:
    return file.with_suffix(".bits")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
