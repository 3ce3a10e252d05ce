"""A process that is killed at some moment, and those after it that take up its jobs. `test_kill.py` runs it.

    crashing.py FOLDER KILLS    kill -9 at each point of `POINTS`, and at random moments under mixed load

Each life is a fork of this process, which has all imports and no thread. What a life sees is appended to files at once,
so that it outlives a kill: `steps/JOB` (life, node, step, seconds), `chunks/JOB` (life, "known" or "told", index, hash)
and, once a job is done, `done/REQUEST` (hash of the clip's frames, hash of its chunks together). Those that were killed
are counted in `killed`. Each way has a folder of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fv_core import AsyncEngine, Engine, MediaChunk, Priority, Request, StepDone
from fv_core.media import atomic
from fv_core.runtime.async_job import AsyncJob
from fv_core.runtime.snapshots import job_store
from fv_core.runtime.snapshots.job_store import JobStore
from fv_core.runtime.snapshots.snapshot import RequestSnapshot

EVERY_S = 0.2
MIXED = [
    *(Request(model="wan21/micro", prompt=f"a red circle {i}", seed=i, size=(32, 32), frames=5, steps=4 + 3 * i)
      for i in range(4)),
    *(Request(model="wan-causal/tiny", prompt=f"a square {i}", seed=i, size=(32, 32), frames=33) for i in range(2)),
]  # fmt: skip
FEW = [MIXED[0], MIXED[4]]
PRIORITIES = tuple(Priority)


def named(request: Request) -> str:
    return f"{request.seed}-{str(request.model).replace('/', '-')}"


def hashed(frames: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(frames).tobytes()).hexdigest()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(owner: Any, name: str, *, nth: int, before: bool) -> None:
    """The process dies before, or right after, the nth call of a function."""
    whole, calls = getattr(owner, name), itertools.count(1)

    def called(*args: Any, **keywords: Any) -> Any:
        last = next(calls) == nth
        if last and before:
            die()
        found = whole(*args, **keywords)
        if last:
            die()
        return found

    setattr(owner, name, called)


POINTS: dict[str, Callable[[], None]] = {
    "accepting": lambda: dying(JobStore, "put", nth=2, before=True),
    "accepted, not told": lambda: dying(JobStore, "accept", nth=2, before=False),
    "snapshot half written": lambda: dying(atomic, "_replace", nth=9, before=True),
    "snapshot written, older ones there": lambda: dying(RequestSnapshot, "save", nth=6, before=False),
    "before a chunk is recorded": lambda: dying(JobStore, "emit", nth=2, before=True),
    "chunk recorded, not told": lambda: dying(JobStore, "emit", nth=2, before=False),
    "chunk told": lambda: dying(AsyncJob, "_take", nth=40, before=False),
    "done, result not told": lambda: dying(AsyncJob, "end", nth=1, before=True),
    "forgetting": lambda: dying(job_store, "_remove_folder", nth=1, before=True),
}
"""Where a process dies; each is reached by the first life."""


def append(path: Path, *told: object) -> None:
    with path.open("a") as file:
        file.write(" ".join(map(str, told)) + "\n")


async def take(engine: AsyncEngine, job: AsyncJob, folder: Path, life: int) -> None:
    for chunk in job.chunks:
        append(folder / "chunks" / job.id, life, "known", chunk.index, hashed(chunk.frames))
    async for event in job:
        if isinstance(event, StepDone):
            append(folder / "steps" / job.id, life, event.node, event.step, event.seconds)
        elif isinstance(event, MediaChunk):
            append(folder / "chunks" / job.id, life, "told", event.index, hashed(event.frames))
    clip = await job.result()
    together = hashed(np.concatenate([chunk.frames for chunk in job.chunks]))
    name = f"{clip.used.seed}-{clip.used.model.replace('/', '-')}"
    atomic.write_files({folder / "done" / name: f"{hashed(clip.frames)} {together}".encode()}, force=True)
    await engine.forget(job)


async def live(folder: Path, life: int, requests: list[Request], every_s: float) -> None:
    async with AsyncEngine(store=folder / "jobs", every_s=every_s, device="cpu") as engine:
        taking = [asyncio.create_task(take(engine, job, folder, life)) for job in await engine.recover()]
        for index, request in enumerate(requests):
            if not (told := folder / "accepted" / named(request)).exists():
                job = await engine.submit(request, priority=PRIORITIES[index % 3], deadline_s=3600.0)
                told.touch()
                taking.append(asyncio.create_task(take(engine, job, folder, life)))
        await asyncio.gather(*taking)


def begin(
    folder: Path, life: int, requests: list[Request], every_s: float, doom: Callable[[], None] | None = None
) -> int:
    """A life in a process of its own; its id."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            torch.set_num_threads(1)
            if doom is not None:
                doom()
            asyncio.run(live(folder, life, requests, every_s))
            status = 0
        finally:
            os._exit(status)
    return process


def ended(process: int) -> int:
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def kill_at_random(folder: Path, seed: int, kills: int) -> int:
    """How many lives were killed before the last one, which ends by itself."""
    rng, killed, whole_s = random.Random(seed), 0, math.inf
    for life in range(4 * kills):
        if killed == kills:
            break
        began, process = time.monotonic(), begin(folder, life, MIXED, EVERY_S)
        if life > 0:  # within the time that a whole life takes; some end by themselves before they are killed
            time.sleep(rng.uniform(0.0, whole_s))
            os.kill(process, signal.SIGKILL)
        if ended(process) == -signal.SIGKILL:
            killed += 1
        else:
            whole_s = min(whole_s, time.monotonic() - began)
        if JobStore(folder / "jobs").jobs() == ():
            accept_again(folder)
    assert ended(begin(folder, 4 * kills, MIXED, EVERY_S)) == 0
    return killed


def accept_again(folder: Path) -> None:
    """Lets the next life submit the requests once more, as new jobs."""
    for told in (folder / "accepted").iterdir():
        told.unlink()


def import_everything() -> None:
    """What components import is imported when they are loaded, which takes longer than all the rest."""
    torch.set_num_threads(1)
    with Engine(device="cpu") as engine:
        for request in FEW:
            engine.run(request)
    assert threading.active_count() == 1


def main(folder: Path, kills: int) -> None:
    import_everything()
    for name in (*POINTS, "random"):
        for what in ("done", "chunks", "steps", "accepted"):
            (folder / name / what).mkdir(parents=True)
    for name, doom in POINTS.items():
        assert ended(begin(folder / name, 0, FEW, 0.0, doom)) == -signal.SIGKILL, f"{name} was not reached"
        assert ended(begin(folder / name, 1, FEW, 0.0)) == 0
    killed = kill_at_random(folder / "random", seed=0, kills=kills)
    (folder / "killed").write_text(str(killed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
