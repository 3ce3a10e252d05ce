"""Scenes: the held-out split, that what is drawn stays in the frame, and the words of a caption."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

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
    vocabulary,
)


def test_the_splits_share_no_combination_and_leave_none_out() -> None:
    seen, held = combinations(Split.SEEN), combinations(Split.HELD_OUT)
    assert not set(seen) & set(held)
    assert len(seen) + len(held) == 3 * 5 * 4 * 2
    assert len(held) == 20


def test_every_pair_of_words_is_seen() -> None:
    """So that a held-out combination asks for nothing but combining."""
    seen = combinations(Split.SEEN)
    words = (SHAPES, COLOURS, DIRECTIONS, BACKGROUNDS)
    places = [(s.shape, s.colour, s.direction, s.background) for s in seen]
    for one, other in itertools.combinations(range(4), 2):
        pairs = {(place[one], place[other]) for place in places}
        assert len(pairs) == len(words[one]) * len(words[other])


def test_a_held_out_combination_is_held_out_with_either_background() -> None:
    held = {(s.shape, s.colour, s.direction) for s in combinations(Split.HELD_OUT)}
    assert not held & {(s.shape, s.colour, s.direction) for s in combinations(Split.SEEN)}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_shape_stays_within_the_frame(direction: str) -> None:
    for index in range(50):
        labels = Labels(shape="circle", colour="red", direction=direction, background="black")
        frames = render(draw(labels, np.random.default_rng(index)), 64, 9)
        for edge in (frames[:, 0], frames[:, -1], frames[:, :, 0], frames[:, :, -1]):
            assert not edge.any()
        assert all(frame.any() for frame in frames)


def test_the_picture_moves_where_the_words_say() -> None:
    labels = Labels(shape="square", colour="red", direction="up", background="black")
    scene = Scene(labels=labels, radius=0.2, start=(0.5, 0.75), travel=0.5)
    rows = [np.flatnonzero(frame.any(axis=(1, 2))).mean() for frame in render(scene, 64, 9)]
    assert rows[0] == pytest.approx(47.5) and rows[-1] == pytest.approx(15.5)
    assert np.allclose(np.diff(rows), -4.0)


def test_shapes_have_about_equal_areas() -> None:
    """So that outline and not area tells them apart: radii vary by more."""
    areas = []
    for shape in SHAPES:
        labels = Labels(shape=shape, colour="red", direction="right", background="black")
        scene = Scene(labels=labels, radius=0.2, start=(0.3, 0.5), travel=0.4)
        areas.append(render(scene, 64, 2)[0, ..., 0].mean())
    assert max(areas) < 1.35 * min(areas)


def test_colours_are_far_apart() -> None:
    values = np.array([*COLOURS.values(), *BACKGROUNDS.values()], int)
    for one, other in itertools.combinations(values, 2):
        assert np.abs(one - other).max() >= 90


def test_every_caption_is_of_the_vocabulary_and_of_no_more_than_nine_words() -> None:
    words = set(vocabulary())
    for labels in (*combinations(Split.SEEN), *combinations(Split.HELD_OUT)):
        captions = {labels.caption(wording, name) for wording in range(len(WORDINGS)) for name in range(2)}
        assert len(captions) == 2 * len(WORDINGS)
        for caption in captions:
            assert set(caption.split()) <= words and len(caption.split()) <= 9
