"""Clips of a model that is being trained, made by the engine that serves it: a request like any other."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from fv_core.errors import FvError
from fv_core.media import Clip
from fv_core.media.atomic import write_files
from fv_core.request import Request
from fv_core.training.config import ValidateTable
from fv_core.training.contract import Reward
from fv_core.training.data.preparing import Note
from fv_core.training.export import averaged
from fv_core.training.offered import judged
from fv_core.training.setup import Setup
from fv_core.training.state import TrainState

SCORES: Final = "scores.json"
"""What the rewards say of the clips beside them: a list with `prompt` and the figures of each reward by its name."""


def make_clips(
    folder: Path, table: ValidateTable, setup: Setup, state: TrainState, note: Note
) -> Mapping[str, float]:
    """One clip per prompt, of the averaged weights where the run keeps an average, as `STEP/NUMBER.mp4`.

    Seeds are fixed, so the clips of two steps differ by the weights alone.

    A reward that fails is told, and is missing of that clip: it does not end the training.

    Returns:
        The means over the prompts of what the rewards say, as `shapes.colour`.
    """
    step = folder / f"{state.step:08d}"
    step.mkdir(parents=True, exist_ok=True)
    instance, trained = (
        setup.model.instance,
        {name for role in setup.method.roles().values() for name in role},
    )
    scores = []
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
            clip = setup.engine.run(request)
            clip.save(step / f"{number:03d}.mp4", force=True)
            scores.append(dict(_said(setup.rewards, clip, prompt, note)))
    instance.weights_changed(*trained)
    if not setup.rewards:
        return {}
    told = [{"prompt": prompt, **score} for prompt, score in zip(table.prompts, scores, strict=True)]
    write_files({step / SCORES: json.dumps(told, indent=1).encode()}, force=True)
    return _means(scores)


def _said(
    rewards: Mapping[str, Reward], clip: Clip, prompt: str, note: Note
) -> Iterator[tuple[str, dict[str, float]]]:
    for name, reward in rewards.items():
        try:
            yield name, judged(name, reward, clip.frames, prompt)
        except (FvError, ValueError) as error:
            note(f"reward {name} could not judge {prompt!r}: {error}")


def _means(scores: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, float]:
    """Of every figure, over the clips that have it."""
    found: dict[str, list[float]] = {}
    for score in scores:
        for reward, figures in score.items():
            for name, figure in figures.items():
                found.setdefault(f"{reward}.{name}", []).append(figure)
    return {name: statistics.mean(figures) for name, figures in found.items()}
