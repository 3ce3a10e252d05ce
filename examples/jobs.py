"""Jobs from an event loop: frames as they come, one that is cancelled, and one that outlives its process."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory

import fv_core as fv

MODEL = "wan-causal/tiny"


async def watch(job: fv.AsyncJob) -> None:
    async for event in job:
        match event:
            case fv.MediaChunk(index=index, frames=frames):
                print(f"chunk {index}: {len(frames)} frames")
            case fv.Failed(code=code):
                print(f"ended with {code}")


async def stop_after_two_chunks(job: fv.AsyncJob) -> None:
    async for event in job:
        if isinstance(event, fv.MediaChunk) and event.index == 1:
            job.cancel()
    try:
        await job.result()
    except fv.Cancelled as cancelled:
        print(f"cancelled with {len(cancelled.partial)} chunks to show")


async def first_process(store: str) -> None:
    async with fv.AsyncEngine(MODEL, store=store) as engine:
        request = fv.Request(prompt="a red circle moving right", frames=21, seed=1)
        stopped = await engine.submit(fv.Request(prompt="a blue square", frames=33, seed=2))
        urgent = await engine.submit(request, priority=fv.Priority.INTERACTIVE)
        await asyncio.gather(watch(urgent), stop_after_two_chunks(stopped))
        await engine.submit(
            fv.Request(prompt="a long clip", frames=33, seed=3)
        )  # and leave before it is done


async def second_process(store: str) -> None:
    async with fv.AsyncEngine(MODEL, store=store) as engine:
        for job in await engine.recover():
            clip = await job.result()
            print(f"taken up: seed {clip.used.seed}, {len(clip.frames)} frames")
            await engine.forget(job)


def main() -> None:
    with TemporaryDirectory() as store:
        asyncio.run(first_process(store))
        asyncio.run(second_process(store))


if __name__ == "__main__":
    main()
