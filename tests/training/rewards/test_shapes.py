"""The scorer of `shapes`: right on every true clip, and wrong, or silent, where a clip does not show what is asked."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fv_core.training.data.scenes import DIRECTIONS, Frames, Labels, Split, combinations, draw, render
from fv_core.training.rewards.shapes import read


def true_clips(side: int = 64) -> list[tuple[Labels, Frames]]:
    every = (*combinations(Split.SEEN), *combinations(Split.HELD_OUT))
    rng = np.random.default_rng(0)
    return [(labels, render(draw(labels, rng), side, 9)) for labels in every]


@pytest.mark.parametrize("side", [32, 64])
def test_every_true_clip_is_read_right(side: int) -> None:
    for labels, frames in true_clips(side):
        hits = read(frames).hits(labels)
        assert all(hits.values()), (labels, hits)


def test_a_reversed_clip_moves_the_other_way() -> None:
    opposite = {"right": "left", "left": "right", "up": "down", "down": "up"}
    for labels, frames in true_clips()[::7]:
        reading = read(frames[::-1])
        assert reading.direction == opposite[labels.direction]
        assert reading.shape == labels.shape and reading.colour == labels.colour


def test_right_by_chance_is_as_rare_as_the_words_are_many() -> None:
    """Shuffled labels: one direction of four, one shape of five, one colour of eight."""
    clips = true_clips(32)
    order = np.random.default_rng(1).permutation(len(clips))
    hits = [read(frames).hits(clips[other][0]) for (_, frames), other in zip(clips, order, strict=True)]
    for name, chance in (("shape", 1 / 5), ("colour", 1 / 8), ("direction", 1 / 4)):
        assert np.mean([hit[name] for hit in hits]) == pytest.approx(chance, abs=0.06)
    assert np.mean([hit["all"] for hit in hits]) < 0.06


def test_what_does_not_move_has_no_direction() -> None:
    labels, frames = true_clips()[0]
    assert labels.direction in DIRECTIONS
    assert read(np.repeat(frames[:1], 9, axis=0)).direction is None


def test_an_object_of_no_known_colour_has_none() -> None:
    labels = Labels(shape="circle", colour="red", direction="right", background="black")
    frames = render(draw(labels, np.random.default_rng(0)), 64, 9)
    white = np.repeat(frames.max(axis=-1, keepdims=True), 3, axis=-1)
    assert read((white > 100).astype(np.uint8) * 250).colour is None


def test_a_plain_clip_and_noise_show_nothing() -> None:
    plain = np.zeros((9, 64, 64, 3), np.uint8)
    noise = np.random.default_rng(0).integers(0, 256, (9, 64, 64, 3)).astype(np.uint8)
    assert dataclasses.astuple(read(plain)) == (None, None, None, "black")
    reading = read(noise)
    assert reading.shape is None and reading.direction is None


def test_a_bar_is_none_of_the_shapes() -> None:
    frames = np.zeros((9, 64, 64, 3), np.uint8)
    for index in range(9):
        frames[index, 30:34, 4 + index * 3 : 34 + index * 3] = (225, 30, 40)
    reading = read(frames)
    assert reading.shape is None and reading.direction == "right" and reading.colour == "red"
