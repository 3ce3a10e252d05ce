"""Pictures in a bucket: cut around the centre, scaled once, and untouched where they fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fv_core.request import Size
from fv_core.training.contract import Bucket
from fv_core.training.data.fit import changes, cut, fitted

SQUARE = Bucket(frames=1, height=32, width=32)
NOISE = np.random.default_rng(0).integers(0, 255, (64, 96, 3), dtype=np.uint8)


def test_a_picture_of_the_size_keeps_every_bit() -> None:
    assert np.array_equal(fitted(NOISE[:32, :32], SQUARE), NOISE[:32, :32])
    assert changes(Size(32, 32), SQUARE) == ()


def test_a_picture_that_is_only_cropped_keeps_the_bits_of_its_centre() -> None:
    assert np.array_equal(fitted(NOISE[:32], SQUARE), NOISE[:32, 32:64])
    assert changes(Size(96, 32), SQUARE) == ("cropped to 32x32",)


def test_a_larger_picture_is_averaged_not_sampled() -> None:
    """Stripes one pixel wide become grey; a resampling that aliases shows some of them."""
    stripes = np.zeros((128, 128, 3), np.uint8)
    stripes[:, ::2] = 255
    small = fitted(stripes, SQUARE)
    assert small.shape == (32, 32, 3) and abs(small[:, 4:-4].astype(int) - 127).max() <= 4
    assert changes(Size(128, 128), SQUARE) == ("scaled to 32x32",)
    assert stripes[::4, ::4].max() == 255  # what sampling would show


def test_shapes_keep_their_proportions() -> None:
    """A disc in the middle of a wide picture is a disc in the square."""
    rows, columns = np.mgrid[0:128, 0:256]
    disc = np.where(((rows - 63.5) ** 2 + (columns - 127.5) ** 2 < 40**2)[..., None], 255, 0).astype(np.uint8)
    small = fitted(np.repeat(disc, 3, axis=2), SQUARE)[..., 0] > 127
    assert abs(int(small.any(0).sum()) - int(small.any(1).sum())) <= 1
    assert abs(int(small.sum()) - 314) < 20  # pi 10^2


sides = st.integers(8, 3000)


@given(width=sides, height=sides, to_width=st.integers(1, 60), to_height=st.integers(1, 60))
def test_the_part_that_is_kept_is_central_whole_in_one_direction_and_of_the_buckets_shape(
    width: int, height: int, to_width: int, to_height: int
) -> None:
    bucket = Bucket(frames=1, height=16 * to_height, width=16 * to_width)
    left, top, right, bottom = cut(Size(width, height), bucket)
    assert left == pytest.approx(width - right) and top == pytest.approx(height - bottom)
    assert left >= 0 and top >= 0
    assert (right - left) / (bottom - top) == pytest.approx(bucket.width / bucket.height)
    assert right - left == pytest.approx(width) or bottom - top == pytest.approx(height)


def test_what_is_done_is_told() -> None:
    assert changes(Size(1920, 1080), SQUARE) == ("cropped to 1080x1080", "scaled to 32x32")
    assert changes(Size(16, 16), SQUARE) == ("enlarged to 32x32",)
