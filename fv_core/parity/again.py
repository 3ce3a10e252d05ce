"""Run as a program: makes the clip that a file orders, in this new process, and stores its bits beside the file.

python -m fv_core.parity.again ORDER.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from fv_core import codec
from fv_core.card import ModelCard
from fv_core.parity.bits import bits
from fv_core.request import Request
from fv_core.runtime.engine import Engine


def run(file: Path) -> None:
    """`ORDER.json` holds card, request, engine arguments and threads; `ORDER.bits` is written."""
    order = json.loads(file.read_text())
    torch.set_num_threads(order["threads"])
    card = ModelCard.from_json(json.dumps(order["card"]))
    request = codec.decode(Request, order["request"])
    with Engine([card], offload="none", **order["engine"]) as engine:
        file.with_suffix(".bits").write_text(json.dumps(bits(engine.run(request).tensors)))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
