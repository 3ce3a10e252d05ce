"""The rule-based scorer of the data set `shapes`: what does a clip show, read from its pixels alone.

Background: the border's colour. Colour: the nearest one of the palette to the middle of the object. Direction: the
slope of the object's centre. Shape: the outline that overlaps the object best, placed and sized to fit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fv_core.training.data.scenes import (
    AREAS,
    BACKGROUNDS,
    COLOURS,
    DIRECTIONS,
    SHAPES,
    Frames,
    Labels,
    asked,
    distance,
)

_LEAST_AREA = 0.02  # of the frame: less is no object
_LEAST_TRAVEL = 0.1  # of the side over the clip: less is no motion
_LEAST_OVERLAP = 0.75  # of object and outline: less is no shape
_FARTHEST = 0.35  # from a colour, of the RGB cube's side: farther is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read; None where nothing of the vocabulary fits."""

    shape: str | None
    colour: str | None
    direction: str | None
    background: str | None

    def hits(self, labels: Labels) -> dict[str, bool]:
        """Per attribute whether it is as labelled, and `all` for shape, colour, direction and background."""
        found = {
            name: getattr(self, name) == getattr(labels, name)
            for name in ("shape", "colour", "direction", "background")
        }
        return {**found, "all": all(found.values())}


class Shapes:
    """The reward: 1 for each of shape, colour, direction and background that the clip shows as its prompt has it."""

    def score(self, frames: Frames, prompt: str) -> Mapping[str, float]:
        """Each of those that the prompt names, and `all` of them.

        Raises:
            ValueError: it names none.
        """
        wanted, reading = asked(prompt), read(frames)
        if not wanted:
            raise ValueError(
                f"{prompt!r} names no shape, colour, direction or background of the data set shapes"
            )
        hits = {name: float(getattr(reading, name) == word) for name, word in wanted.items()}
        return {**hits, "all": min(hits.values())}


def read(frames: Frames) -> Reading:
    """Reads a clip [F, H, W, 3] of any square size."""
    video: NDArray[np.float32] = frames.astype(np.float32) / np.float32(255)
    border = np.concatenate([video[:, 0], video[:, -1], video[:, :, 0], video[:, :, -1]], axis=1)
    ground = np.median(border.reshape(-1, 3), axis=0).astype(np.float32)
    away = np.abs(video - ground).max(axis=-1).astype(np.float32)
    cover: NDArray[np.float32] = np.clip(away / np.float32(max(float(np.quantile(away, 0.98)), 0.2)), 0, 1)
    background = _nearest(ground, BACKGROUNDS)
    if min((frame > 0.5).mean() for frame in cover) < _LEAST_AREA:
        return Reading(shape=None, colour=None, direction=None, background=background)
    return Reading(
        shape=_shape(cover), colour=_colour(video, cover), direction=_direction(cover), background=background
    )


def _nearest(colour: NDArray[np.float32], palette: dict[str, tuple[int, int, int]]) -> str | None:
    gaps = {
        name: float(np.linalg.norm(colour - np.array(value, np.float32) / 255))
        for name, value in palette.items()
    }
    name = min(gaps, key=gaps.__getitem__)
    return name if gaps[name] <= _FARTHEST else None


def _colour(video: NDArray[np.float32], cover: NDArray[np.float32]) -> str | None:
    inside = video[cover > 0.8]
    return _nearest(np.median(inside, axis=0).astype(np.float32), COLOURS) if len(inside) else None


def _centres(cover: NDArray[np.float32]) -> NDArray[np.float32]:
    """Centres (x, y) [F, 2] as fractions of the side."""
    side = cover.shape[-1]
    pixels = (np.arange(side, dtype=np.float32) + 0.5) / side
    mass = cover.sum(axis=(1, 2))
    return np.stack([(cover.sum(1) * pixels).sum(1) / mass, (cover.sum(2) * pixels).sum(1) / mass], axis=1)


def _direction(cover: NDArray[np.float32]) -> str | None:
    centres = _centres(cover)
    time = np.arange(len(centres), dtype=np.float32)
    time -= time.mean()
    travel = (time[:, None] * centres).sum(0) / (time * time).sum() * (len(centres) - 1)
    best = max(DIRECTIONS, key=lambda name: float(np.dot(travel, DIRECTIONS[name])))
    along = float(np.dot(travel, DIRECTIONS[best]))
    across = float(np.abs(travel).min())
    return best if along >= _LEAST_TRAVEL and across < along / 2 else None


def _shape(cover: NDArray[np.float32]) -> str | None:
    """The majority of the frames, each by the best overlap with an outline of the object's own area."""
    centres = _centres(cover)
    votes = [_outline(cover[frame], centres[frame]) for frame in range(len(cover))]
    best = max(SHAPES, key=votes.count)
    return best if votes.count(best) * 2 > len(votes) else None


def _outline(cover: NDArray[np.float32], centre: NDArray[np.float32]) -> str | None:
    side = len(cover)
    pixels = (np.arange(side, dtype=np.float32) + 0.5) / side
    dx, dy = pixels[None, :] - centre[0], pixels[:, None] - centre[1]
    area = float(cover.sum()) / side**2
    overlaps = {name: _overlap(cover, name, dx, dy, area) for name in SHAPES}
    best = max(overlaps, key=overlaps.__getitem__)
    return best if overlaps[best] >= _LEAST_OVERLAP else None


def _overlap(
    cover: NDArray[np.float32], shape: str, dx: NDArray[np.float32], dy: NDArray[np.float32], area: float
) -> float:
    radius = float(np.sqrt(area / AREAS[shape]))
    outline = np.clip(0.5 - distance(shape, dx, dy, radius) * len(cover), 0, 1)
    return float(np.minimum(cover, outline).sum() / np.maximum(cover, outline).sum())
