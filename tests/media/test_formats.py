"""Each format's limits are met before anything is encoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from fv_core.errors import RequestError
from fv_core.media.formats import FORMATS, check_rate, check_size, format_of
from fv_core.request import Size


@pytest.mark.parametrize("name", ["out.avi", "out", ".mp4", "out.mp4.", "out.jpg", "out.mp3"])
def test_format_of_an_unknown_suffix_lists_the_legal_ones(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        format_of(Path(name))
    assert caught.value.code == "FV315"
    assert caught.value.legal == ".mp4, .webm, .gif, .webp, .png, .npy, .wav, .txt"


@pytest.mark.parametrize("size", [Size(63, 64), Size(64, 63)])
def test_only_h264_refuses_odd_sides(size: Size) -> None:
    with pytest.raises(RequestError, match=f"'{size}': has an odd side") as caught:
        check_size(FORMATS[".mp4"], size)
    assert caught.value.code == "FV315"
    for suffix in (".webm", ".gif", ".webp", ".png", ".npy"):
        check_size(FORMATS[suffix], size)


@pytest.mark.parametrize(
    ("suffix", "side"), [(".mp4", 16_384), (".webm", 16_384), (".webp", 16_383), (".gif", 65_535)]
)
def test_sides_beyond_the_format_are_refused(suffix: str, side: int) -> None:
    check_size(FORMATS[suffix], Size(side, 64))
    with pytest.raises(RequestError, match=f"at most {side} pixels"):
        check_size(FORMATS[suffix], Size(64, side + 2))


@pytest.mark.parametrize(
    ("suffix", "fps", "frames"),
    [
        (".gif", 60.0, 17),  # players slow frames of 1/100 s down to a tenth of the rate
        (".gif", 1.0, 700),  # equal frames would be one of 700 s; the field ends at 655.35 s
        (".webp", 1001.0, 17),
        (".webp", 1.0, 20_000),
        (".webm", 1001.0, 17),
        (".mp4", 24.000000001, 17),
    ],
)
def test_rates_beyond_the_format_are_refused(suffix: str, fps: float, frames: int) -> None:
    with pytest.raises(RequestError) as caught:
        check_rate(FORMATS[suffix], fps, frames)
    assert caught.value.code == "FV307"


@pytest.mark.parametrize(
    ("suffix", "fps"), [(".gif", 50.0), (".webp", 1000.0), (".mp4", 1001.0), (".png", float("nan"))]
)
def test_rates_within_the_format_pass(suffix: str, fps: float) -> None:
    check_rate(FORMATS[suffix], fps, 17)
