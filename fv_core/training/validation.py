"""Clips of a model that is being trained, made by the engine that serves it: a request like any other."""

from __future__ import annotations

from pathlib import Path

from fv_core.request import Request
from fv_core.training.config import ValidateTable
from fv_core.training.export import averaged
from fv_core.training.setup import Setup
from fv_core.training.state import TrainState


def make_clips(folder: Path, table: ValidateTable, setup: Setup, state: TrainState) -> tuple[Path, ...]:
    """One clip per prompt, of the averaged weights where the run keeps an average, as `STEP/NUMBER.mp4`.

    Seeds are fixed, so the clips of two steps differ by the weights alone.
    """
    step = folder / f"{state.step:08d}"
    step.mkdir(parents=True, exist_ok=True)
    instance, trained = (
        setup.model.instance,
        {name for role in setup.method.roles().values() for name in role},
    )
    paths = []
    with averaged(state):
        instance.weights_changed(*trained)  # or what was kept of earlier ones would be found
        for number, prompt in enumerate(table.prompts):
            request = Request(
                prompt=prompt,
                model=instance.card.model_id,
                seed=table.seed + number,
                size=table.size,
                frames=table.frames,
                steps=table.steps,
                guidance=table.guidance,
            )
            path = step / f"{number:03d}.mp4"
            setup.engine.run(request).save(path, force=True)
            paths.append(path)
    instance.weights_changed(*trained)
    return tuple(paths)
