"""What a run tells of itself in the recipe of its model: its beginning, its data, its way and its end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from fv_core import codec
from fv_core.card import Provenance
from fv_core.runtime.instance import ModelInstance
from fv_core.training.runlog import read_metrics
from fv_core.training.setup import Setup
from fv_core.weights.store import fingerprint

_TOLD: Final = ("loss", "lr", "grad_norm")
"""The figures that follow from the settings; those of time do not, and the same run would have another recipe."""


def provenance(setup: Setup, run: Path, *, steps: int, command: str) -> Provenance:
    """Args:
    run: its folder, whose `metrics.jsonl` is whole. steps: that were taken.
    """
    last = {str(line["role"]): line for line in read_metrics(run)}
    figures = {
        f"{role}/{name}": float(line[name])
        for role, line in last.items()
        for name in _TOLD
        if math.isfinite(float(line[name]))
    }
    return Provenance(
        parents=_parents(setup.model.instance),
        data=setup.table.name,
        data_digest=setup.data.digest or codec.digest(setup.resolved["data"]),
        command=command,
        steps=steps,
        seed=setup.resolved["train"]["seed"],
        figures=figures,
    )


def _parents(instance: ModelInstance) -> tuple[str, ...]:
    if instance.folder is None:
        return ()
    card = instance.card
    before = card.recipe.made.parents if card.recipe.made else ()
    return (f"{card.model_id} {fingerprint(card, instance.folder)}", *before)
