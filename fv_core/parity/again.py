"""Runs in a new process: ordered by one file, their bits and what they changed of the process told by another.

python -m fv_core.parity.again ORDER.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fv_core import codec
from fv_core.card import ModelCard
from fv_core.parity.bits import Bits, bits
from fv_core.parity.process import changes, process_state
from fv_core.request import Request
from fv_core.runtime.engine import Engine

_HASH_SEED = "4099"


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What runs in a new process came to: the bits of each, and what they changed of it, a sentence each."""

    bits: tuple[Bits, ...]
    changed: tuple[str, ...]


def run_again(card: ModelCard, requests: Sequence[Request], engine: Mapping[str, str | None]) -> Again | str:
    """The requests in a new process with another hash seed; what that process said last where it failed.

    Args:
        engine: device, dtype and weights, as `Engine` takes them.
    """
    order = {
        "card": json.loads(card.to_json()),
        "requests": [codec.encode(request) for request in requests],
        "engine": dict(engine),
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
        told = json.loads(_answer(file).read_text())
        return Again(bits=tuple(told["bits"]), changed=tuple(told["changed"]))


def main(file: Path) -> None:
    """Runs what `file` orders and writes what came of it beside it."""
    order = json.loads(file.read_text())
    card = ModelCard.from_json(json.dumps(order["card"]))
    requests = [codec.decode(Request, one) for one in order["requests"]]
    torch.set_num_threads(order["threads"])
    with Engine([card], offload="none", reuse=False, **order["engine"]) as engine:
        for component in card.components:  # what loading changes, it changes once
            engine.instance(card.model_id).component(component)
        before = process_state()
        found = [bits(engine.run(request).tensors) for request in requests]
        changed = list(changes(before, process_state()))
        # Whoever sets the number of threads to what it is already, does it to all.
        torch.set_num_threads(order["threads"] + 1)
        before = process_state()
        engine.run(requests[0])
        changed += changes(before, process_state())
    _answer(file).write_text(json.dumps({"bits": found, "changed": list(dict.fromkeys(changed))}))


def _answer(file: Path) -> Path:
    return file.with_suffix(".told")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
