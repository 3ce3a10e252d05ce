"""Buckets: legal for the card, and each clip in the one it fits best."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fv_core.errors import TrainError
from fv_core.plugins import find_card
from fv_core.request import Size
from fv_core.training.contract import Bucket
from fv_core.training.data.buckets import choose, legal_buckets, scale

WAN = find_card("wan21/t2v-1.3b")


def bucket(frames: int, height: int, width: int) -> Bucket:
    return Bucket(frames=frames, height=height, width=width)


def refused(*given: int) -> TrainError:
    with pytest.raises(TrainError) as caught:
        legal_buckets([given], WAN)
    assert caught.value.code == "FV721"
    return caught.value


def test_without_any_there_is_the_models_own() -> None:
    assert legal_buckets([], WAN) == (bucket(81, 480, 832),)


def test_buckets_stay_in_order_each_once() -> None:
    given = [(81, 480, 832), (1, 832, 480), (81, 480, 832)]
    assert legal_buckets(given, WAN) == (bucket(81, 480, 832), bucket(1, 832, 480))


@pytest.mark.parametrize(
    ("given", "nearest"),
    [((80, 480, 832), "[81, 480, 832]"), ((81, 480, 850), "[81, 480, 848]"), ((81, 1, 832), "[81, 16, 832]")],
)
def test_what_the_model_has_no_latents_for_is_refused_with_the_nearest(
    given: tuple[int, ...], nearest: str
) -> None:
    error = refused(*given)
    assert error.remedy == f"The nearest is {nearest}."
    legal = [int(number) for number in re.findall(r"\d+", error.remedy)]
    assert legal_buckets([legal], WAN)


@pytest.mark.parametrize(
    "given", [(81, 480), (81, 480, 832, 3), (81, 480, 0), (81, 480, -16), (True, 480, 832)]
)
def test_what_is_no_geometry_is_refused(given: tuple[int, ...]) -> None:
    assert "is not [frames, height, width]" in refused(*given).rule


geometries = st.builds(
    bucket,
    st.sampled_from([1, 9, 17, 49, 81]),
    st.sampled_from([256, 480, 832]),
    st.sampled_from([256, 480, 832]),
)


@given(
    buckets=st.lists(geometries, min_size=1, max_size=8),
    frames=st.integers(1, 120),
    size=st.builds(Size, st.integers(16, 4000), st.integers(16, 4000)),
)
def test_a_clip_goes_to_the_longest_that_it_fills_and_then_to_the_nearest_shape(
    buckets: list[Bucket], frames: int, size: Size
) -> None:
    chosen = choose(buckets, frames, size)
    images = [one for one in buckets if one.frames == 1]
    fillable = images if frames == 1 else [one for one in buckets if 1 < one.frames <= frames]
    if chosen is None:
        assert not fillable
        return
    assert chosen in fillable and chosen.frames == max(one.frames for one in fillable)
    rivals = [one for one in fillable if one.frames == chosen.frames]
    assert kept(chosen, size) >= max(kept(one, size) for one in rivals) - 1e-6
    assert choose(buckets[::-1], frames, size) == chosen


def kept(one: Bucket, size: Size) -> float:
    """The share of a picture that is not cropped."""
    factor = scale(one, size)
    return one.width * one.height / (size.width * size.height * factor**2)


def test_of_one_shape_the_largest_that_need_not_be_enlarged() -> None:
    squares = [bucket(9, side, side) for side in (256, 480, 832)]
    assert choose(squares, 9, Size(500, 500)) == bucket(9, 480, 480)
    assert choose(squares, 9, Size(2000, 2000)) == bucket(9, 832, 832)
    assert choose(squares, 9, Size(64, 64)) == bucket(9, 256, 256)


def test_a_video_never_becomes_an_image_nor_an_image_a_video() -> None:
    assert choose([bucket(1, 256, 256)], 9, Size(256, 256)) is None
    assert choose([bucket(9, 256, 256)], 1, Size(256, 256)) is None
