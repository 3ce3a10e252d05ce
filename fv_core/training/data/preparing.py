"""What happens to data before the first step: what became of its files is told, and its features are computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from fv_core.training.data.encoded import Filled
from fv_core.training.data.opening import Data
from fv_core.training.ranks import Ranks

Note: TypeAlias = Callable[[str], None]
"""Is told a sentence."""

REPORT: Final = "data.txt"
"""The report in a run's folder."""


def prepare_data(data: Data, run: Path, ranks: Ranks, note: Note) -> Filled | None:
    """Writes the report into the run's folder, and computes the features that are not there yet.

    Returns:
        None: the data has no features that are kept.
    """
    lines: list[str] = []
    if ranks.first and data.report is not None:
        lines = data.report.lines()
        note(f"{data.report.summary()}; {run / REPORT} tells of each")
    filled = data.fill(rank=ranks.rank, ranks=ranks.count)
    if filled is not None and ranks.first:
        note(
            f"{filled.latents} latents and {filled.embeds} embeddings were computed, {filled.found} were there"
        )
        lines += ["", *filled.notes]
        if filled.notes:
            note(f"{len(filled.notes)} captions were not taken as given; {run / REPORT} tells which")
    if lines:
        run.mkdir(parents=True, exist_ok=True)
        (run / REPORT).write_text("\n".join([*lines, ""]), encoding="utf-8")
    ranks.wait()
    return filled
