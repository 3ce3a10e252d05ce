"""A request stopped half way and finished by another engine, as after a crash: the frames are the same to the bit."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

import fv_core as fv
from fv_core.runtime.snapshots.snapshot import RequestSnapshot

REQUEST = fv.Request(prompt="a red circle moving right", seed=7)
FILE = Path("half-way.safetensors")


def stop_half_way() -> None:
    with fv.Engine() as engine, closing(engine.start(REQUEST)) as job:
        for _ in range(8):
            job.step()
        engine.snapshot(job).save(FILE)


def finish() -> fv.Clip:
    with fv.Engine() as engine, closing(engine.resume(RequestSnapshot.load(FILE))) as job:
        while not job.done:
            job.step()
        return engine.clip(job)


def main() -> None:
    stop_half_way()
    resumed = finish()
    with fv.Engine() as engine:
        whole = engine.run(REQUEST)
    print(f"resumed equals uninterrupted: {np.array_equal(resumed.frames, whole.frames)}")
    FILE.unlink()


if __name__ == "__main__":
    main()
