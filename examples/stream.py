"""Frames as they come: a causal model shows a chunk while the next one is still being made."""

from __future__ import annotations

import fv_core as fv


def show(event: fv.RequestEvent) -> None:
    if isinstance(event, fv.MediaChunk):
        print(f"chunk {event.index}: {len(event.frames)} frames")
    elif isinstance(event, fv.StepDone) and event.node == "rollout":
        print(f"  {event.label} {event.step}/{event.total}")


def main() -> None:
    request = fv.Request(prompt="a red circle moving right", model="wan-causal/tiny", frames=21, seed=1)
    with fv.Engine(["wan-causal/tiny"]) as engine:
        clip = engine.run(request, observer=show)
    print(clip.save("streamed.mp4", force=True))


if __name__ == "__main__":
    main()
