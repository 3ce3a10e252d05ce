"""How long commands take before they do anything, against a bare interpreter and against importing the alternative.

Each row is a new process. `import diffusers` is what a script around the pipeline pays before it can say "help".
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from report import Goal, alternate, arguments, report, settled

FV = str(Path(sys.executable).with_name("fv"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "fv --version": [FV, "--version"],
    "fv --help": [FV, "--help"],
    "fv models --json": [FV, "models", "--json"],
    "fv generate, bad size": [FV, "generate", "a circle", "--size", "100x100"],
    "import fv_core": [sys.executable, "-c", "import fv_core"],
    "import WanPipeline": [sys.executable, "-c", "from diffusers import WanPipeline"],
}
EXPECTED_EXIT = {"fv generate, bad size": 2}


def launch(name: str) -> None:
    done = subprocess.run(
        COMMANDS[name], capture_output=True, env={**os.environ, "NO_COLOR": "1"}, check=False
    )
    if done.returncode != EXPECTED_EXIT.get(name, 0):
        raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr.decode()}")


def main() -> None:
    args = settled(arguments(__doc__, rounds=5))
    contenders = {name: lambda name=name: launch(name) for name in COMMANDS}
    if not args.smoke:
        alternate(contenders, 1)  # byte code and file caches
    seconds = alternate(contenders, args.rounds)
    millis = {name: 1000 * statistics.median(times) for name, times in seconds.items()}
    rows = [("process", "median ms"), *((name, f"{value:.0f}") for name, value in millis.items())]
    figures = {
        "help_ms": millis["fv --help"],
        "models_ms": millis["fv models --json"],
        "refusal_ms": millis["fv generate, bad size"],
        "import_ms": millis["import fv_core"],
        "import_wan_pipeline_ms": millis["import WanPipeline"],
    }
    goals = [
        Goal(figure="help_ms", at_most=True, limit=200),
        Goal(figure="models_ms", at_most=True, limit=400),
        Goal(figure="import_ms", at_most=True, limit=100),
    ]
    report("startup", rows, figures, goals, args)


if __name__ == "__main__":
    main()
