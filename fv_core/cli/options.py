"""The options of `fv generate` as one value, and the combinations that make no sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import click

REQUEST_FLAGS: Final = (
    "prompt", "model", "size", "frames", "fps", "steps", "guidance", "negative", "seed", "n", "numerics", "set",
    "task", "image", "video", "audio", "action", "lora",
)  # fmt: skip
"""What a sidecar settles, so that beside `--from` it would contradict it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Each option by its name; None where neither flag, variable nor setting gave one.

    Args:
        repeat: the sidecar of `--from`.
        folder: what relative outputs are in: the working folder before any plugin was loaded.
        flags: names of those given on this command line.
        sources: the variable or the key of a file that each of the others comes from, by name.
    """

    prompt: str | None
    model: str | None
    size: tuple[int, int] | None
    frames: int | None
    fps: float | None
    steps: int | None
    guidance: float | None
    negative: str | None
    seed: int | None
    n: int
    device: str
    dtype: str
    weights: Path | None
    numerics: str | None
    max_batch: int
    offload: Literal["auto", "none", "component"]
    memory: int | None
    require_certified: bool
    set: tuple[str, ...]
    task: str | None
    image: tuple[str, ...]
    video: tuple[str, ...]
    audio: tuple[str, ...]
    action: tuple[str, ...]
    lora: tuple[str, ...]
    repeat: Path | None
    sidecar: bool
    dry_run: bool
    force: bool
    output: Path | None
    scale: int
    as_json: bool
    as_events: bool
    folder: Path
    flags: frozenset[str]
    sources: Mapping[str, str]

    def check(self) -> None:
        """Raises:
        click.UsageError: options that exclude each other, or one that would have no effect.
        """
        if self.repeat is not None:
            beside = [_shown(name) for name in REQUEST_FLAGS if name in self.flags]
            if beside:
                raise click.UsageError(
                    f"--from repeats a run as it was; it cannot be changed by {', '.join(beside)}."
                )
        elif self.prompt is None:
            raise click.UsageError('a prompt is missing, such as "a red circle moving right".')
        if self.force and self.output is None:
            raise click.UsageError("--force replaces the file of --output; without one nothing is replaced.")
        if self.as_json and self.as_events:
            raise click.UsageError("--events ends with what --json prints; give one of them.")
        if self.dry_run and "require_certified" in self.flags:
            raise click.UsageError(
                "--dry-run loads no weights, which --require-certified compares; give one of them."
            )
        if self.dry_run and self.as_events:
            raise click.UsageError("--dry-run has no events; give --json for a document.")


def _shown(name: str) -> str:
    return "a PROMPT" if name == "prompt" else f"--{name}"
