"""The source `shapes`: a sample follows from (seed, index, epoch), and belongs to its split."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fv_core.card import ModelCard
from fv_core.training.contract import Bucket, DataContext, Latent, Pixels, Source
from fv_core.training.data import shapes
from fv_core.training.data.scenes import Split, combinations
from fv_wan21.card import CARDS


@pytest.fixture(scope="module")
def context() -> DataContext:
    return DataContext(card=tiny_card(), content=Pixels, seed=3, folder=Path())


def tiny_card() -> ModelCard:
    return next(card for card in CARDS if card.model_id == "wan21/micro")


def source(context: DataContext, **keys: object) -> Source:
    return shapes.build(shapes.Config(**keys), context)  # type: ignore[arg-type]


def test_clips_are_of_the_cards_default_geometry(context: DataContext) -> None:
    found = source(context, clips=5)
    size = context.card.defaults.size
    assert len(found) == 5
    assert (found.bucket(0).frames, found.bucket(0).height) == (context.card.defaults.frames, size.height)
    content = found.sample(4, 0).content
    assert isinstance(content, Pixels)
    assert content.frames.shape == (context.card.defaults.frames, size.height, size.width, 3)


@settings(max_examples=10, deadline=None)
@given(index=st.integers(0, 10_000), epoch=st.integers(0, 1000))
def test_a_sample_is_the_same_whoever_asks_and_when(index: int, epoch: int) -> None:
    context = DataContext(card=tiny_card(), content=Pixels, seed=3, folder=Path())
    first, second = source(context, clips=20_000), source(context, clips=20_000)
    second.sample(index + 1, epoch)
    one, other = first.sample(index, epoch), second.sample(index, epoch)
    assert isinstance(one.content, Pixels) and isinstance(other.content, Pixels)
    assert one.caption == other.caption and one.content.frames.equal(other.content.frames)


def test_an_epoch_rewords_captions_and_keeps_clips(context: DataContext) -> None:
    found = source(context, clips=40)
    captions = [{found.sample(index, epoch).caption for epoch in range(4)} for index in range(20)]
    assert sum(len(wordings) > 1 for wordings in captions) > 15
    one, other = found.sample(7, 0).content, found.sample(7, 1).content
    assert isinstance(one, Pixels) and isinstance(other, Pixels)
    assert one.frames.equal(other.frames)


def test_another_seed_and_another_index_are_other_scenes(context: DataContext) -> None:
    size = Bucket(frames=9, height=64, width=64)
    one, other = (shapes.Shapes(seed=seed, clips=50, split=Split.SEEN, geometry=size) for seed in (1, 2))
    assert len({one.scene(index) for index in range(50)} | {other.scene(index) for index in range(50)}) == 100


@pytest.mark.parametrize("split", Split)
def test_every_scene_is_of_its_split(context: DataContext, split: Split) -> None:
    size = Bucket(frames=9, height=64, width=64)
    found = shapes.Shapes(seed=0, clips=300, split=split, geometry=size)
    assert {found.scene(index).labels.split() for index in range(300)} == {split}


def test_scenes_are_of_the_words_that_are_named(context: DataContext) -> None:
    words = ("square", "red", "green", "up", "black")
    found = source(context, clips=40, words=words)
    assert isinstance(found, shapes.Shapes)
    assert {found.scene(index).labels for index in range(40)} == set(combinations(Split.SEEN, words))


def test_latents_are_kept_in_one_tensor(context: DataContext) -> None:
    asked = []

    def codec(clip: Tensor) -> Tensor:
        asked.append(clip)
        return clip[:, :2, :1, :4, :4] * 2

    size = Bucket(frames=9, height=64, width=64)
    coded = shapes.Coded(codec=codec, clips=30)
    found = shapes.Shapes(seed=0, clips=30, split=Split.SEEN, geometry=size, coded=coded)
    first = [found.sample(index, 0).content for index in (7, 3, 7)]
    assert len(asked) == 2 and all(
        isinstance(one, Latent) and one.mean.shape == (2, 1, 4, 4) for one in first
    )
    means = [one.mean for one in first if isinstance(one, Latent)]
    assert means[0].equal(means[2]) and not means[0].equal(means[1])
    assert means[1].equal(asked[1][0, :2, :1, :4, :4] * 2)
    assert len({mean.untyped_storage().data_ptr() for mean in means}) == 1


def test_an_epoch_has_a_clip() -> None:
    with pytest.raises(ValueError, match="clips 0"):
        shapes.Config(clips=0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("circle", "crimson"), r"\['crimson'\] are none of .*black.*yellow"),
        (("circle", "red", "up"), "make no seen combination of shape, colour, direction and background"),
    ],
)
def test_words_that_make_no_scene_are_refused(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        shapes.Config(words=words)
