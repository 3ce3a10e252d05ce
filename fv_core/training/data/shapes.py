"""The source `shapes`: drawn scenes of one split. A sample follows from (seed, index, epoch); nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fv_core.plugins.reference import resolve_reference
from fv_core.training.contract import Bucket, Content, DataContext, Latent, Pixels, Sample, Source
from fv_core.training.data.scenes import (
    BACKGROUNDS,
    COLOURS,
    DIRECTIONS,
    SHAPES,
    WORDINGS,
    Labels,
    Scene,
    Split,
    combinations,
    draw,
    render,
)

Codec: TypeAlias = Callable[[Tensor], Tensor]
_WORDING = 1  # the draws of a caption, apart from those of its scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Keys of [data].

    Args:
        clips: scenes of an epoch, from 1 up; each comes again in every epoch, in another wording.
        split: which combinations of shape, colour and direction are drawn.
        words: of which words, at least one of each kind; of all that there are if none is named.
        codec: "module:attr" of a function that makes latents [1, C, f, h, w] of clips [1, 3, F, height, width] in
            [-1, 1], where the method takes latents: cheaper than the encoder, which was trained to give the same.
    """

    clips: int = 24_000
    split: Split = Split.SEEN
    words: tuple[str, ...] = ()
    codec: str = ""

    def __post_init__(self) -> None:
        if self.clips < 1:
            raise ValueError(f"clips {self.clips} is below 1")
        known = {*SHAPES, *COLOURS, *DIRECTIONS, *BACKGROUNDS}
        if unknown := sorted(set(self.words) - known):
            raise ValueError(f"words {unknown} are none of {', '.join(sorted(known))}")
        if not combinations(self.split, self.words):
            raise ValueError(
                f"words {list(self.words)} make no {self.split} combination of shape, colour, direction and background"
            )


@dataclass(slots=True, kw_only=True, eq=False)
class Coded:
    """The latents of `clips` clips, each made when it is first asked for.

    They lie in one tensor: small ones, each allocated between the large ones it is made of, keep a hundred times their
    size from being used again.
    """

    codec: Codec
    clips: int
    latents: Tensor | None = None
    known: set[int] = field(default_factory=set)

    def latent(self, index: int, frames: Callable[[], Tensor]) -> Tensor:
        """[C, f, h, w] of the clip that `frames` gives, uint8 [F, height, width, 3]."""
        if self.latents is None or index not in self.known:
            made = self.codec(frames().permute(3, 0, 1, 2).unsqueeze(0).float() / 127.5 - 1)[0]
            if self.latents is None:
                self.latents = made.new_empty(self.clips, *made.shape)
            self.latents[index] = made
            self.known.add(index)
        return self.latents[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Scenes of one geometry, as pixels or as latents."""

    seed: int
    clips: int
    split: Split
    geometry: Bucket
    words: tuple[str, ...] = ()
    coded: Coded | None = None

    def __len__(self) -> int:
        return self.clips

    def bucket(self, index: int) -> Bucket:
        return self.geometry

    def scene(self, index: int) -> Scene:
        """What sample `index` shows."""
        rng = _rng(self.seed, index)
        pool = combinations(self.split, self.words)
        return draw(pool[int(rng.integers(len(pool)))], rng)

    def sample(self, index: int, epoch: int) -> Sample:
        scene = self.scene(index)
        return Sample(
            id=f"{self.split}/{self.seed}/{index}",
            caption=reworded(scene.labels, _rng(self.seed, index, epoch + _WORDING)),
            content=self._content(scene, index),
        )

    def _content(self, scene: Scene, index: int) -> Content:
        def frames() -> Tensor:
            return torch.from_numpy(render(scene, self.geometry.height, self.geometry.frames))

        return (
            Pixels(frames=frames()) if self.coded is None else Latent(mean=self.coded.latent(index, frames))
        )


def reworded(labels: Labels, rng: np.random.Generator) -> str:
    """A caption in one of the wordings, with one of each word's names."""
    return labels.caption(int(rng.integers(len(WORDINGS))), rng)


def build(config: Any, context: DataContext) -> Source:
    """The source for a card whose default clip is square."""
    size, frames = context.card.defaults.size, context.card.defaults.frames
    geometry = Bucket(frames=frames, height=size.height, width=size.width)
    codec = resolve_reference(config.codec, owner="data.codec") if config.codec else None
    return Shapes(
        seed=context.seed,
        clips=config.clips,
        split=config.split,
        words=config.words,
        geometry=geometry,
        coded=Coded(codec=codec, clips=config.clips) if codec and context.content is Latent else None,
    )


def _rng(seed: int, index: int, purpose: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, index], counter=[0, 0, 0, purpose]))
