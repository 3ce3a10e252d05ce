"""mp4 and webm: codec, exact rate, BT.709 in the tags and in the samples, index first, equal bytes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from fv_core.media import Clip, exact_rate

CODECS = {".mp4": "h264", ".webm": "vp9"}
RATES = [16.0, 23.976, 24000 / 1001, 30000 / 1001, 12.5, 1.0, 0.5, 120.0]
COLOURS = [
    *((red, green, blue) for red in (0, 255) for green in (0, 255) for blue in (0, 255)),
    (220, 30, 30), (30, 60, 220), (128, 128, 128), (40, 40, 40), (200, 180, 90), (17, 99, 61),
]  # fmt: skip

video_suffix = pytest.mark.parametrize("suffix", [".mp4", ".webm"])


def decoded(path: Path, pixels: str = "rgb24") -> npt.NDArray[np.int64]:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format=pixels) for frame in container.decode(video=0)]).astype(int)


def atoms(data: bytes) -> list[str]:
    """The names of the top-level boxes of an mp4 file, in order."""
    names, at = [], 0
    while at < len(data):
        names.append(data[at + 4 : at + 8].decode())
        at += int.from_bytes(data[at : at + 4], "big")
    assert at == len(data)
    return names


@pytest.mark.parametrize("fps", RATES)
@video_suffix
def test_video_keeps_rate_and_frames(
    circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path, suffix: str, fps: float
) -> None:
    path = clip_of(circle.frames, fps=fps).save(tmp_path / f"out{suffix}")
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.time_base is not None
        times = [frame.pts * stream.time_base for frame in container.decode(stream) if frame.pts is not None]
        assert stream.codec_context.name == CODECS[suffix]
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert stream.average_rate == exact_rate(fps)
    expected = [index / exact_rate(fps) for index in range(7)]
    tick = Fraction(0) if suffix == ".mp4" else Fraction(1, 2000)  # webm counts milliseconds
    assert len(times) == 7
    assert all(abs(got - want) <= tick for got, want in zip(times, expected, strict=True))


@video_suffix
def test_video_keeps_even_a_rate_that_is_no_common_fraction(
    circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path, suffix: str
) -> None:
    path = clip_of(circle.frames, fps=np.pi).save(tmp_path / f"out{suffix}")
    assert decoded(path).shape == (7, 64, 96, 3)


@video_suffix
def test_video_of_one_frame_is_a_video(
    circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path, suffix: str
) -> None:
    path = clip_of(circle.frames[:1]).save(tmp_path / f"out{suffix}")
    assert decoded(path).shape == (1, 64, 96, 3)


def test_webm_takes_odd_sides(circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path) -> None:
    path = clip_of(circle.frames[:, :63, :95]).save(tmp_path / "out.webm")
    assert decoded(path).shape == (7, 63, 95, 3)


@video_suffix
def test_video_shows_the_frames_in_order(circle: Clip, tmp_path: Path, suffix: str) -> None:
    shown = decoded(circle.save(tmp_path / f"out{suffix}"))
    error = np.abs(shown - circle.frames).mean(axis=(1, 2, 3))
    # measured: at most 1.9 for the right frame (halved colour resolution at the rim), at least 7 for a neighbour
    assert error.max() < 3.0
    assert np.abs(shown[1:] - circle.frames[:-1]).mean(axis=(1, 2, 3)).min() > 5.0


@pytest.mark.parametrize("colour", COLOURS)
@video_suffix
def test_video_colour_survives(
    clip_of: Callable[..., Clip], tmp_path: Path, suffix: str, colour: tuple[int, int, int]
) -> None:
    frames = np.broadcast_to(np.array(colour, dtype=np.uint8), (3, 64, 64, 3))
    shown = decoded(clip_of(frames).save(tmp_path / f"out{suffix}"))
    # 8-bit limited-range samples cannot hold every colour; measured worst over these and 64 random colours: 3
    assert np.abs(shown - frames).max() <= 3


@pytest.mark.parametrize("colour", COLOURS)
@video_suffix
def test_video_samples_follow_the_bt709_equations(
    clip_of: Callable[..., Clip], tmp_path: Path, suffix: str, colour: tuple[int, int, int]
) -> None:
    frames = np.broadcast_to(np.array(colour, dtype=np.uint8), (3, 64, 64, 3))
    planes = decoded(clip_of(frames).save(tmp_path / f"out{suffix}"), "yuv420p")
    red, green, blue = (part / 255 for part in colour)
    luma = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    wanted = (16 + 219 * luma, 128 + 224 * (blue - luma) / 1.8556, 128 + 224 * (red - luma) / 1.5748)
    # the 64 rows of luma, then 16 rows that hold U and 16 that hold V; measured worst 1.0, a 601 matrix is off by 20
    for got, want in zip((planes[:, :64], planes[:, 64:80], planes[:, 80:]), wanted, strict=True):
        assert np.abs(got - want).max() <= 1.5


@video_suffix
def test_video_tags_bt709_limited_range(circle: Clip, tmp_path: Path, suffix: str) -> None:
    with av.open(str(circle.save(tmp_path / f"out{suffix}"))) as container:
        context = container.streams.video[0].codec_context
        tags = (context.colorspace, context.color_primaries, context.color_trc, context.color_range)
    assert tags == (1, 1, 1, 1)


def test_mp4_index_comes_before_the_data(circle: Clip, noise: Clip, tmp_path: Path) -> None:
    for name, clip in (("small", circle), ("large", noise)):
        boxes = atoms(clip.save(tmp_path / f"{name}.mp4").read_bytes())
        assert boxes.index("moov") < boxes.index("mdat")


@pytest.mark.needs("ffprobe")
@pytest.mark.parametrize("fps", RATES)
@video_suffix
def test_ffprobe_agrees(
    circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path, suffix: str, fps: float
) -> None:
    path = clip_of(circle.frames, fps=fps).save(tmp_path / f"out{suffix}")
    command = [
        "ffprobe",
        "-v",
        "error",
        "-count_frames",
        "-show_streams",
        "-show_format",
        "-of",
        "json",
        str(path),
    ]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    (stream,) = told["streams"]
    expected = {
        "codec_name": CODECS[suffix],
        "pix_fmt": "yuv420p",
        "width": 96,
        "height": 64,
        "color_range": "tv",
        "color_space": "bt709",
        "color_transfer": "bt709",
        "color_primaries": "bt709",
        "nb_read_frames": "7",
    }
    assert {key: stream[key] for key in expected} == expected
    assert Fraction(stream["r_frame_rate"]) == exact_rate(fps)
    assert "creation_time" not in json.dumps(told)


class Spied:
    """An output container that notes which options its stream is made with."""

    def __init__(self, container: Any) -> None:
        self._container = container
        self.streams_made: list[tuple[dict[str, str], Any]] = []

    def __enter__(self) -> Spied:
        return self

    def __exit__(self, *ended: object) -> None:
        self._container.__exit__(*ended)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def add_stream(self, codec: str, rate: Fraction, options: dict[str, str]) -> Any:
        stream = self._container.add_stream(codec, rate=rate, options=options)
        self.streams_made.append((options, stream))
        return stream


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        (".mp4", {"crf": "17", "preset": "medium", "x264-params": "cpu-independent=1"}),
        (".webm", {"crf": "24", "b": "0", "deadline": "good", "cpu-used": "2"}),
    ],
)
def test_encoders_run_with_one_thread_and_the_same_kernels_everywhere(
    suffix: str, expected: dict[str, str], circle: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One encode in a hundred would show it: bytes that depend on the CPU or on how many threads there are."""
    spied: list[Spied] = []
    plain = av.open

    def spy(file: Any, mode: Any = "r", **options: Any) -> Any:
        if mode != "w":
            return plain(file, mode, **options)
        spied.append(Spied(plain(file, mode, **options)))
        return spied[-1]

    monkeypatch.setattr("av.open", spy)
    circle.save(tmp_path / f"out{suffix}")
    (made,) = [stream for each in spied for stream in each.streams_made]
    assert made[0] == expected
    assert made[1].thread_count == 1


def test_x264_itself_says_that_it_ran_with_one_thread(circle: Clip, tmp_path: Path) -> None:
    told = circle.save(tmp_path / "out.mp4").read_bytes().partition(b"x264 - core")[2][:1000]
    for option in (b" threads=1 ", b" lookahead_threads=1 ", b" crf=17.0 "):
        assert option in told
