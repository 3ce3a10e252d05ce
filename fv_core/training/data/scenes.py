"""Drawn scenes: one coloured shape that moves in one direction over a plain background, and words that say so.

Some combinations of shape, colour and direction are held out: a model that draws them has learned to combine.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Frames = NDArray[np.uint8]
"""[F, H, W, 3], RGB."""

SHAPES: Final = {"circle": ("circle", "disc"), "square": ("square", "box"), "triangle": ("triangle", "wedge")}
COLOURS: Final = {
    "red": (225, 30, 40),
    "green": (30, 170, 60),
    "blue": (40, 80, 230),
    "yellow": (240, 205, 30),
    "purple": (160, 50, 190),
}
"""Apart by at least 100 of 255 in some channel, from each other and from both backgrounds."""
DIRECTIONS: Final = {"right": (1.0, 0.0), "left": (-1.0, 0.0), "down": (0.0, 1.0), "up": (0.0, -1.0)}
"""Unit vectors (x, y), y downwards."""
BACKGROUNDS: Final = {"black": (0, 0, 0), "white": (255, 255, 255)}
WORDINGS: Final = (
    "a {colour} {shape} moving {direction} on a {background} background",
    "{colour} {shape} moving {direction} on {background}",
    "the {colour} {shape} moves {direction} on a {background} background",
    "a {shape} in {colour} moving {direction} on {background}",
    "on a {background} background a {colour} {shape} moves {direction}",
)


class Split(StrEnum):
    """SEEN combinations are trained on, HELD_OUT ones only evaluated."""

    SEEN = "seen"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Labels:
    """What a clip shows, in the first word of each list of synonyms."""

    shape: str
    colour: str
    direction: str
    background: str

    def split(self) -> Split:
        """One combination of six is held out, each with both backgrounds; every pair of words stays seen."""
        place = (
            2 * list(SHAPES).index(self.shape)
            + list(COLOURS).index(self.colour)
            + 3 * list(DIRECTIONS).index(self.direction)
        )
        return Split.HELD_OUT if place % 6 == 0 else Split.SEEN

    def caption(self, wording: int, synonym: int = 0) -> str:
        """The caption in one of the `WORDINGS`, with one of the shape's synonyms."""
        return WORDINGS[wording].format(
            shape=SHAPES[self.shape][synonym],
            colour=self.colour,
            direction=self.direction,
            background=self.background,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One clip's content. `radius`, `start` (x, y) and `travel` are fractions of the frame's side."""

    labels: Labels
    radius: float
    start: tuple[float, float]
    travel: float


def combinations(split: Split) -> tuple[Labels, ...]:
    """All labels of a split, in a fixed order."""
    words = itertools.product(SHAPES, COLOURS, DIRECTIONS, BACKGROUNDS)
    found = (Labels(shape=s, colour=c, direction=d, background=b) for s, c, d, b in words)
    return tuple(labels for labels in found if labels.split() is split)


def vocabulary() -> tuple[str, ...]:
    """Every word that a caption may hold, sorted."""
    found = {word for text in WORDINGS for word in text.split() if not word.startswith("{")}
    found |= {word for synonyms in SHAPES.values() for word in synonyms}
    return tuple(sorted(found | set(COLOURS) | set(DIRECTIONS) | set(BACKGROUNDS)))


def draw(labels: Labels, rng: np.random.Generator) -> Scene:
    """A scene whose shape stays within the frame from the first to the last picture."""
    radius, travel = float(rng.uniform(0.18, 0.23)), float(rng.uniform(0.38, 0.48))
    edge = radius + 0.02
    across = float(rng.uniform(edge, 1 - edge))
    along = float(rng.uniform(edge, 1 - edge - travel))
    x, y = DIRECTIONS[labels.direction]
    if x + y < 0:
        along = 1 - along
    return Scene(labels=labels, radius=radius, start=(along, across) if x else (across, along), travel=travel)


def render(scene: Scene, side: int, frames: int) -> Frames:
    """The clip [frames, side, side, 3], edges anti-aliased over one pixel."""
    step = np.arange(frames, dtype=np.float32) * (scene.travel / (frames - 1))
    x, y = DIRECTIONS[scene.labels.direction]
    pixels = (np.arange(side, dtype=np.float32) + 0.5) / side
    dx = pixels[None, None, :] - (scene.start[0] + x * step)[:, None, None]
    dy = pixels[None, :, None] - (scene.start[1] + y * step)[:, None, None]
    cover = np.clip(0.5 - distance(scene.labels.shape, dx, dy, scene.radius) * side, 0, 1)[..., None]
    inside = np.array(COLOURS[scene.labels.colour], np.float32)
    outside = np.array(BACKGROUNDS[scene.labels.background], np.float32)
    video: Frames = np.rint(outside + cover * (inside - outside)).astype(np.uint8)
    return video


def distance(
    shape: str, dx: NDArray[np.float32], dy: NDArray[np.float32], radius: float
) -> NDArray[np.float32]:
    """Signed distance to the outline, negative inside; the three shapes have about equal areas.

    Reference: the exact distances of https://iquilezles.org/articles/distfunctions2d, the triangle's as the
    largest of its three edges' (exact inside and along the edges, which is where a pixel is covered in part).
    """
    if shape == "circle":
        found = np.sqrt(dx * dx + dy * dy) - radius
    elif shape == "square":
        found = np.maximum(np.abs(dx), np.abs(dy)) - 0.87 * radius
    else:
        inner = 0.68 * radius  # of the inscribed circle; the centre of mass is the centre
        found = np.maximum(np.abs(dx) * np.float32(0.8660254) - dy * 0.5, dy) - inner
    return np.asarray(found, np.float32)
