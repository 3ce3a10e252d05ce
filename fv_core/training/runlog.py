"""What a run tells of its steps: a line of JSON each, in `metrics.jsonl` of its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from fv_core.media.atomic import write_files

Figures: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTold:
    """One optimizer step of a role.

    Args:
        step: done so far. steps: of the run.
        figures: loss, lr, grad_norm, seconds, data_seconds, samples_per_second, and those of the method.
    """

    role: str
    step: int
    steps: int
    figures: Figures = field(default_factory=dict)


class RunLog:
    """Writes the lines. Those of steps that a resumed run takes again are dropped first."""

    def __init__(self, run: Path, *, done: int) -> None:
        path = run / "metrics.jsonl"
        if path.exists():
            lines = [line for line in path.read_text().splitlines(keepends=True) if _is_before(line, done)]
            write_files({path: "".join(lines).encode()}, force=True)
        self._file = path.open("a", buffering=1)

    def tell(self, told: StepTold) -> None:
        line = {"step": told.step, "role": told.role, **told.figures}
        self._file.write(json.dumps(line) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_metrics(run: Path) -> list[dict[str, float | str]]:
    """The lines of a run so far."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def _is_before(line: str, done: int) -> bool:
    try:
        return int(json.loads(line)["step"]) <= done
    except ValueError:  # cut off by a kill
        return False
