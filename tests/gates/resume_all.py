"""Run as a program: resumes every snapshot below a folder in this one process and stores what each comes to.

    python resume_all.py FOLDER

`FOLDER/<run>/<n>.snapshot` becomes `<n>.result`: latent, frames and the events still told. A run named after an
interceptor of `gate_interceptors` has it enabled.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from fv_core import Engine, MediaChunk, StepDone
from fv_core.request import RequestEvent
from fv_core.runtime.gain import Always
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.runtime.stores import Counters

GATE = importlib.import_module("gate_interceptors")  # beside this file
NOTHING = Counters(requests=0, values=0, value_bytes=0, caches=0, cache_bytes=0)


def resume_all(folder: Path) -> None:
    """Resumes the snapshots of one run, on one engine."""
    extensions = [GATE.spec(folder.name)] if hasattr(GATE, folder.name) else []
    with Engine(["wan21/micro"], device="cpu", extensions=extensions, gain=Always()) as engine:
        for path in sorted(folder.glob("*.snapshot")):
            resume(engine, path)
        assert engine.counters() == NOTHING, engine.counters()


def resume(engine: Engine, path: Path) -> None:
    events: list[RequestEvent] = []
    job = engine.resume(RequestSnapshot.load(path), observer=events.append)
    while not job.done:
        job.step()
    clip = engine.clip(job)
    job.close()
    steps = [[event.node, event.step] for event in events if isinstance(event, StepDone)]
    chunks = [event.index for event in events if isinstance(event, MediaChunk)]
    told = {"steps": steps, "chunks": chunks, "notes": clip.used.adjusted}
    tensors = {"latent": clip.tensors["latent"], "frames": torch.from_numpy(clip.frames)}
    save_file(tensors, path.with_suffix(".result"), metadata={"told": json.dumps(told)})


if __name__ == "__main__":
    torch.set_num_threads(1)
    for run in sorted(Path(sys.argv[1]).iterdir()):
        resume_all(run)
