"""How long until a newcomer sees a clip: `fv generate` in a new process, against the imports that it cannot do without.

The floor is a process that imports what the model is made of and does nothing. The second clip is one more request
of the same engine, in another process that has made one before.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from report import Goal, alternate, arguments, report, settled

PROMPT = "a red circle moving right on a black background"
IMPORTS = "import av, torch; from diffusers import AutoencoderKLWan, WanTransformer3DModel; "
IMPORTS += "from transformers import AutoTokenizer, UMT5EncoderModel"
SECOND = f"""
import time, fv_core
with fv_core.Engine("wan21/tiny", device="cpu") as engine:
    for seed in (0, 1):
        began = time.perf_counter()
        clip = engine.run(fv_core.Request(prompt={PROMPT!r}, seed=seed))
        clip.save(f"{{seed}}.mp4")
        seconds = time.perf_counter() - began
    print(seconds)
"""


FV = str(Path(sys.executable).with_name("fv"))
LATER: list[float] = []
"""Seconds of each second clip."""


def launch(*command: str) -> str:
    """Runs a process in a folder of its own; what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def imports() -> None:
    launch(sys.executable, "-c", IMPORTS)


def first() -> None:
    launch(FV, "generate", PROMPT, "--device", "cpu", "-o", "clip.mp4")


def second() -> None:
    LATER.append(float(launch(sys.executable, "-c", SECOND)))


def main() -> None:
    args = settled(arguments(__doc__, rounds=3))
    contenders = {"imports alone": imports, "fv generate": first, "two clips in one process": second}
    if not args.smoke:
        alternate(contenders, 1)  # byte code and file caches
        LATER.clear()
    seconds = {name: statistics.median(times) for name, times in alternate(contenders, args.rounds).items()}
    later = statistics.median(LATER)
    rows = [
        ("process", "median s"),
        *((name, f"{value:.2f}") for name, value in seconds.items()),
        ("the second clip of these", f"{later:.2f}"),
    ]
    figures = {
        "imports_s": seconds["imports alone"],
        "first_clip_s": seconds["fv generate"],
        "first_over_imports": seconds["fv generate"] / seconds["imports alone"],
        "second_clip_s": later,
    }
    report("first_clip", rows, figures, [Goal(figure="second_clip_s", at_most=True, limit=1.5)], args)


if __name__ == "__main__":
    main()
