"""The source `shapes`: drawn scenes of one split. A sample follows from (seed, index, epoch); nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fv_core.training.contract import Bucket, DataContext, Pixels, Sample, Source
from fv_core.training.data.scenes import SHAPES, WORDINGS, Labels, Scene, Split, combinations, draw, render

_WORDING = 1  # the draws of a caption, apart from those of its scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Keys of [data].

    Args:
        clips: scenes of an epoch, from 1 up; each comes again in every epoch, in another wording.
        split: which combinations of shape, colour and direction are drawn.
    """

    clips: int = 24_000
    split: Split = Split.SEEN

    def __post_init__(self) -> None:
        if self.clips < 1:
            raise ValueError(f"clips {self.clips} is below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Scenes at the card's default size and number of frames."""

    seed: int
    clips: int
    split: Split
    geometry: Bucket

    def __len__(self) -> int:
        return self.clips

    def bucket(self, index: int) -> Bucket:
        return self.geometry

    def scene(self, index: int) -> Scene:
        """What sample `index` shows."""
        rng = _rng(self.seed, index)
        pool = combinations(self.split)
        return draw(pool[int(rng.integers(len(pool)))], rng)

    def sample(self, index: int, epoch: int) -> Sample:
        scene = self.scene(index)
        frames = render(scene, self.geometry.height, self.geometry.frames)
        return Sample(
            id=f"{self.split}/{self.seed}/{index}",
            caption=reworded(scene.labels, _rng(self.seed, index, epoch + _WORDING)),
            content=Pixels(frames=torch.from_numpy(frames)),
        )


def reworded(labels: Labels, rng: np.random.Generator) -> str:
    """A caption in one of the wordings, with one of the shape's names."""
    return labels.caption(int(rng.integers(len(WORDINGS))), int(rng.integers(len(SHAPES[labels.shape]))))


def build(config: Any, context: DataContext) -> Source:
    """The source for a card whose default clip is square."""
    size, frames = context.card.defaults.size, context.card.defaults.frames
    geometry = Bucket(frames=frames, height=size.height, width=size.width)
    return Shapes(seed=context.seed, clips=config.clips, split=config.split, geometry=geometry)


def _rng(seed: int, index: int, purpose: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, index], counter=[0, 0, 0, purpose]))
