"""Drawn scenes: one coloured shape that moves in one direction over a plain background, and words that say so.

Some combinations of shape, colour and direction are held out: a model that draws them has learned to combine.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Frames = NDArray[np.uint8]
"""[F, H, W, 3], RGB."""

SHAPES: Final = ("circle", "square", "triangle", "diamond", "cross")
COLOURS: Final = {
    "red": (225, 30, 40),
    "green": (30, 170, 60),
    "blue": (40, 80, 230),
    "yellow": (240, 205, 30),
    "purple": (160, 50, 190),
    "orange": (245, 118, 20),
    "cyan": (40, 205, 225),
    "pink": (255, 150, 200),
}
"""Apart by at least 85 of 255 in some channel from each other, by 78 from every background."""
DIRECTIONS: Final = {"right": (1.0, 0.0), "left": (-1.0, 0.0), "down": (0.0, 1.0), "up": (0.0, -1.0)}
"""Unit vectors (x, y), y downwards."""
BACKGROUNDS: Final = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (128, 128, 128),
    "navy": (15, 25, 85),
}
_MARGIN: Final = 0.016  # a pixel of 64
_CIRCLE, _SQUARE, _INSCRIBED, _DIAMOND, _ARM, _BAR = 1.0, 0.87, 0.68, 1.1, 1.05, 0.42
_REACH: Final = {
    "circle": (_CIRCLE,) * 4,
    "square": (_SQUARE,) * 4,
    "triangle": (math.sqrt(3) * _INSCRIBED, math.sqrt(3) * _INSCRIBED, 2 * _INSCRIBED, _INSCRIBED),
    "diamond": (_DIAMOND,) * 4,
    "cross": (_ARM,) * 4,
}
"""How far an outline of radius one reaches from its centre of mass: left, right, up, down."""
AREAS: Final = {
    "circle": math.pi * _CIRCLE**2,
    "square": (2 * _SQUARE) ** 2,
    "triangle": 3 * math.sqrt(3) * _INSCRIBED**2,
    "diamond": 2 * _DIAMOND**2,
    "cross": 4 * _BAR * (2 * _ARM - _BAR),
}
"""Of the outlines of radius one; about equal, so that the outline and not the area tells shapes apart."""
SYNONYMS: Final = {
    "circle": ("disc", "ball"),
    "square": ("box",),
    "triangle": ("wedge",),
    "diamond": ("rhombus",),
    "cross": ("plus",),
    "purple": ("violet",),
    "cyan": ("turquoise",),
    "right": ("rightwards",),
    "left": ("leftwards",),
    "down": ("downwards",),
    "up": ("upwards",),
    "grey": ("gray",),
}
"""Other names of a word, of which captions hold each as often as the word itself."""
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

    def caption(self, wording: int, rng: np.random.Generator | None = None) -> str:
        """The caption in one of the `WORDINGS`, in names that `rng` draws, or in the words themselves without one."""

        def named(word: str) -> str:
            names = (word, *SYNONYMS.get(word, ()))
            return word if rng is None else names[int(rng.integers(len(names)))]

        return WORDINGS[wording].format(
            shape=named(self.shape),
            colour=named(self.colour),
            direction=named(self.direction),
            background=named(self.background),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One clip's content. `radius`, `start` (x, y) and `travel` are fractions of the frame's side."""

    labels: Labels
    radius: float
    start: tuple[float, float]
    travel: float


@lru_cache
def combinations(split: Split, words: tuple[str, ...] = ()) -> tuple[Labels, ...]:
    """All labels of a split, in a fixed order; with `words`, those of these words alone."""
    found = (
        Labels(shape=s, colour=c, direction=d, background=b)
        for s, c, d, b in itertools.product(SHAPES, COLOURS, DIRECTIONS, BACKGROUNDS)
        if not words or {s, c, d, b} <= set(words)
    )
    return tuple(labels for labels in found if labels.split() is split)


def vocabulary(words: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Every word that a caption may hold, sorted; with `words`, one of a scene of these alone."""
    known = words or (*SHAPES, *COLOURS, *DIRECTIONS, *BACKGROUNDS)
    found = {word for text in WORDINGS for word in text.split() if not word.startswith("{")}
    return tuple(sorted(found.union(*((word, *SYNONYMS.get(word, ())) for word in known))))


def asked(prompt: str) -> dict[str, str]:
    """What a prompt names of shape, colour, direction and background, in the first of their words; case is ignored.

    Of two colours, say, the last one counts.
    """
    said = re.findall("[a-z]+", prompt.lower())
    kinds = {"shape": SHAPES, "colour": COLOURS, "direction": DIRECTIONS, "background": BACKGROUNDS}
    return {
        kind: word
        for kind, words in kinds.items()
        for word in words
        if not {word, *SYNONYMS.get(word, ())}.isdisjoint(said)
    }


def draw(labels: Labels, rng: np.random.Generator) -> Scene:
    """A scene whose shape stays within the frame from the first to the last picture."""
    radius, travel = float(rng.uniform(0.18, 0.22)), float(rng.uniform(0.38, 0.44))
    left, right, up, down = (_MARGIN + radius * reach for reach in _REACH[labels.shape])
    x, y = DIRECTIONS[labels.direction]
    return Scene(
        labels=labels,
        radius=radius,
        start=(_begin(left, right, x * travel, rng), _begin(up, down, y * travel, rng)),
        travel=travel,
    )


def _begin(before: float, after: float, travel: float, rng: np.random.Generator) -> float:
    """Where a centre may begin that keeps `before` from the lower edge and `after` from the upper one all along."""
    return float(rng.uniform(before - min(travel, 0), 1 - after - max(travel, 0)))


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
    """Signed distance to the outline, negative inside.

    Reference: https://iquilezles.org/articles/distfunctions2d; what has corners is the largest of the distances from
    its edges, exact inside and along the edges, which is where a pixel is covered in part.
    """
    across, down = np.abs(dx), np.abs(dy)
    if shape == "circle":
        found = np.sqrt(dx * dx + dy * dy) - _CIRCLE * radius
    elif shape == "square":
        found = np.maximum(across, down) - _SQUARE * radius
    elif shape == "triangle":
        found = np.maximum(across * np.float32(0.8660254) - dy * 0.5, dy) - _INSCRIBED * radius
    elif shape == "diamond":
        found = (across + down - _DIAMOND * radius) * np.float32(math.sqrt(0.5))
    else:
        longer, shorter = np.maximum(across, down), np.minimum(across, down)
        found = np.maximum(longer - _ARM * radius, shorter - _BAR * radius)
    return np.asarray(found, np.float32)
