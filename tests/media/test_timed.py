"""Pictures with their times: every format that fv writes, upright, and nothing damaged passes for whole."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from fv_core.errors import RequestError
from fv_core.media.timed import timed_pictures
from fv_core.media.video import encode_mp4, encode_webm

NOISE = np.random.default_rng(2).integers(0, 255, (10, 32, 48, 3), dtype=np.uint8)
_UNTURNED = bytes.fromhex("00010000" + "00" * 12 + "00010000" + "00" * 12 + "40000000")
_TURNED = bytes.fromhex("00000000" + "00010000" + "00" * 4 + "ffff0000" + "00" * 16 + "40000000")
"""Matrices of a track: as it lies, and to be shown a quarter turned clockwise."""

Encode = Callable[[npt.NDArray[np.uint8], Fraction, str], bytes]


def refused(path: Path) -> str:
    with pytest.raises(RequestError) as caught:
        list(timed_pictures(path))
    assert caught.value.code == "FV320"
    return caught.value.rule


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


@pytest.mark.parametrize(("encode", "suffix"), [(encode_mp4, ".mp4"), (encode_webm, ".webm")])
@pytest.mark.parametrize("rate", [Fraction(16), Fraction(30000, 1001), Fraction(25, 2)])
def test_pictures_come_with_the_times_of_their_rate(
    encode: Encode, suffix: str, rate: Fraction, written: Callable[[str, bytes], Path]
) -> None:
    pictures = list(timed_pictures(written(f"a{suffix}", encode(NOISE, rate, ""))))
    assert len(pictures) == len(NOISE)
    for index, picture in enumerate(pictures):
        assert abs(picture.time - pictures[0].time - index / rate) <= picture.tick
        assert picture.pixels.shape == (32, 48, 3)


def test_an_image_is_one_picture_and_tells_what_it_does_not_show(tmp_path: Path) -> None:
    Image.fromarray(NOISE[0]).convert("RGBA").save(tmp_path / "a.png")
    (picture,) = timed_pictures(tmp_path / "a.png")
    assert picture.notes == ("the image's transparency is not used",)
    assert np.array_equal(picture.pixels, NOISE[0])


def test_a_clip_filmed_lying_is_shown_upright(written: Callable[[str, bytes], Path]) -> None:
    """Red on the right is below after a quarter turn clockwise."""
    lying = np.zeros((3, 32, 48, 3), np.uint8)
    lying[:, :, 32:, 0] = 255
    film, movie, track = encode_mp4(lying, Fraction(8), "").rpartition(_UNTURNED)[::2], _UNTURNED, _TURNED
    assert movie in film[0], "the movie has a matrix too"
    (picture, *_) = timed_pictures(written("a.mp4", film[0] + track + film[1]))
    assert picture.pixels.shape == (48, 32, 3)
    assert picture.pixels[40:, :, 0].min() > 200 > 50 > picture.pixels[:24, :, 0].max()


@pytest.mark.parametrize(("encode", "suffix"), [(encode_mp4, ".mp4"), (encode_webm, ".webm")])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_video_that_is_cut_short_is_refused(
    encode: Encode, suffix: str, share: float, written: Callable[[str, bytes], Path]
) -> None:
    whole = encode(NOISE, Fraction(16), "")
    assert refused(written(f"cut{suffix}", whole[: int(len(whole) * share)]))


def test_what_is_no_video_is_refused_with_the_reason(
    written: Callable[[str, bytes], Path], tmp_path: Path
) -> None:
    assert "no format that is read" in refused(written("a.mp4", b"these are words"))
    assert "no image" in refused(written("a.png", b"these are words"))
    assert "No such file" in refused(tmp_path / "absent.mp4")
    assert "No such file" in refused(tmp_path / "absent.png")
    damaged = bytearray(encode_mp4(NOISE, Fraction(16), ""))
    damaged[len(damaged) // 2 : len(damaged) // 2 + 20] = bytes(20)
    assert "damaged at frame" in refused(written("damaged.mp4", bytes(damaged)))


def test_reading_stops_where_the_reader_stops(written: Callable[[str, bytes], Path]) -> None:
    """The file is closed with the reader, and what comes after is never decoded."""
    whole = encode_mp4(NOISE, Fraction(16), "")
    pictures = timed_pictures(written("a.mp4", whole))
    next(pictures)
    pictures.close()
    assert list(pictures) == []
