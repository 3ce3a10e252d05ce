"""A process that takes jobs on, or takes up those of the one before it, and may be killed at any moment.

Usage: crashing.py FOLDER. Writes one file per job that is done: the hash of its clip, and how many of its chunks were
told. Not a test itself: `test_kill.py` starts and kills it.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path

import torch

from fv_core import Clip, MediaChunk, Request
from fv_core.runtime.async_engine import AsyncEngine
from fv_core.runtime.async_job import AsyncJob

REQUESTS = [
    *(Request(model="wan21/tiny", prompt=f"a red circle {i}", seed=i, size=(32, 32), frames=5, steps=4 + 3 * i)
      for i in range(4)),
    *(Request(model="wan-causal/tiny", prompt=f"a square {i}", seed=i, size=(32, 32), frames=33) for i in range(2)),
]  # fmt: skip


def told(clip: Clip) -> str:
    return hashlib.sha256(clip.frames.tobytes()).hexdigest()


async def take(engine: AsyncEngine, job: AsyncJob, folder: Path) -> None:
    chunks = [event.index async for event in job if isinstance(event, MediaChunk)]
    clip = await job.result()
    with (folder / "chunks" / job.id).open("a") as file:
        file.writelines(f"{index}\n" for index in chunks)
    (folder / "done" / f"{clip.used.seed}-{clip.used.model.replace('/', '-')}").write_text(told(clip))
    await engine.forget(job)


async def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for name in ("done", "chunks"):
        (folder / name).mkdir(exist_ok=True)
    async with AsyncEngine(store=folder / "jobs", every_s=0.2, device="cpu") as engine:
        jobs = await engine.recover()
        if not (folder / "accepted").exists():
            for request in REQUESTS:
                jobs.append(await engine.submit(request))
            (folder / "accepted").touch()
        sys.stdout.write("going\n")
        sys.stdout.flush()
        await asyncio.gather(*(take(engine, job, folder) for job in jobs))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
