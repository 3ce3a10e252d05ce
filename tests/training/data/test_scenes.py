"""Scenes: the held-out split, that what is drawn stays in the frame, and the words of a caption."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fv_core.training.data.scenes import (
    AREAS,
    BACKGROUNDS,
    COLOURS,
    DIRECTIONS,
    SHAPES,
    SYNONYMS,
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
    assert len(seen) + len(held) == 5 * 8 * 4 * 4
    assert len(held) == 112


def test_some_words_make_the_combinations_of_these_alone() -> None:
    words = ("circle", "square", "red", "blue", "up", "down", "left", "black")
    found = {split: combinations(split, words) for split in Split}
    assert len(found[Split.SEEN]) + len(found[Split.HELD_OUT]) == 2 * 2 * 3 * 1
    for split, chosen in found.items():
        assert set(chosen) < set(combinations(split))
        assert all({s.shape, s.colour, s.direction, s.background} <= set(words) for s in chosen)


def test_every_pair_of_words_is_seen() -> None:
    """So that a held-out combination asks for nothing but combining."""
    seen = combinations(Split.SEEN)
    words = (SHAPES, COLOURS, DIRECTIONS, BACKGROUNDS)
    places = [(s.shape, s.colour, s.direction, s.background) for s in seen]
    for one, other in itertools.combinations(range(4), 2):
        pairs = {(place[one], place[other]) for place in places}
        assert len(pairs) == len(words[one]) * len(words[other])


def test_a_held_out_combination_is_held_out_with_every_background() -> None:
    held = {(s.shape, s.colour, s.direction) for s in combinations(Split.HELD_OUT)}
    assert not held & {(s.shape, s.colour, s.direction) for s in combinations(Split.SEEN)}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_shape_stays_within_the_frame(shape: str, direction: str) -> None:
    for index in range(50):
        labels = Labels(shape=shape, colour="red", direction=direction, background="black")
        frames = render(draw(labels, np.random.default_rng(index)), 64, 9)
        for edge in (frames[:, 0], frames[:, -1], frames[:, :, 0], frames[:, :, -1]):
            if shape in ("triangle", "diamond"):  # no more than the softened tip of a corner
                assert edge.max() < COLOURS["red"][0] / 4
            else:
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
        areas.append(render(scene, 64, 2)[0, ..., 0].mean() / 225)
        assert areas[-1] == pytest.approx(AREAS[shape] * 0.2**2, rel=0.02)
    assert max(areas) < 1.35 * min(areas)


def test_colours_are_far_apart() -> None:
    plain = [*list(COLOURS.values())[:5], BACKGROUNDS["black"], BACKGROUNDS["white"]]
    for one, other in itertools.combinations(plain, 2):
        assert np.abs(np.array(one) - other).max() >= 90
    for values in (COLOURS.values(), BACKGROUNDS.values()):
        for one, other in itertools.combinations(values, 2):
            assert np.abs(np.array(one) - other).max() >= 85
    for one, other in itertools.product(COLOURS.values(), BACKGROUNDS.values()):
        assert np.abs(np.array(one) - other).max() >= 78


def test_every_caption_is_of_the_vocabulary_and_of_no_more_than_nine_words() -> None:
    words, rng = set(vocabulary()), np.random.default_rng(0)
    for labels in (*combinations(Split.SEEN), *combinations(Split.HELD_OUT)):
        captions = [labels.caption(wording) for wording in range(len(WORDINGS))]
        assert len(set(captions)) == len(WORDINGS)
        for caption in (*captions, labels.caption(0, rng)):
            assert set(caption.split()) <= words and len(caption.split()) <= 9


def test_every_name_of_a_word_is_used() -> None:
    rng = np.random.default_rng(0)
    for labels in (
        Labels(shape="circle", colour="purple", direction="up", background="grey"),
        Labels(shape="cross", colour="cyan", direction="left", background="black"),
    ):
        asked = {word for _ in range(60) for word in labels.caption(1, rng).split()}
        for word in (labels.shape, labels.colour, labels.direction, labels.background):
            assert {word, *SYNONYMS.get(word, ())} <= asked
