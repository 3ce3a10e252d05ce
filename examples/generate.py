"""A clip from a prompt, in a few lines of library use."""

from __future__ import annotations

import fv_core as fv


def main() -> None:
    clip = fv.generate("a red circle moving right", seed=7)
    path = clip.save("circle.mp4", force=True)
    used = clip.used
    print(
        f"{path}: {used.frames} frames of {used.size} at {used.fps:g} fps, seed {used.seed}, {used.steps} steps"
    )


if __name__ == "__main__":
    main()
