"""GIF, WebP, PNG and array files give back the frames, at the right times."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageSequence

from fv_core.media import Clip, exact_rate

Shown = list[tuple[npt.NDArray[np.uint8], int]]


def shown(path: Path) -> Shown:
    """The frames of an animation and how many milliseconds each shows."""
    with Image.open(path) as image:
        frames = ImageSequence.Iterator(image)
        return [(np.asarray(frame.convert("RGB")), int(frame.info["duration"])) for frame in frames]


def loops(path: Path) -> int:
    with Image.open(path) as image:
        return int(image.info["loop"])


@pytest.mark.parametrize("fps", [16.0, 23.976, 8.0, 50.0])
@pytest.mark.parametrize(("suffix", "unit_ms"), [(".gif", 10), (".webp", 1)])
def test_animation_times_are_right_to_half_a_unit(
    circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path, suffix: str, unit_ms: int, fps: float
) -> None:
    path = clip_of(circle.frames, fps=fps).save(tmp_path / f"out{suffix}")
    ends = np.cumsum([show_ms for _, show_ms in shown(path)])
    assert len(ends) == 7
    for index, end in enumerate(ends, start=1):
        assert abs(Fraction(int(end)) - index * 1000 / exact_rate(fps)) <= Fraction(unit_ms, 2)
    assert loops(path) == 0  # for ever


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_animation_of_few_colours_is_exact(circle: Clip, tmp_path: Path, suffix: str) -> None:
    frames = [frame for frame, _ in shown(circle.save(tmp_path / f"out{suffix}"))]
    np.testing.assert_array_equal(np.stack(frames), circle.frames)


@pytest.mark.parametrize("colours", [255, 256])
def test_gif_keeps_up_to_256_colours(clip_of: Callable[..., Clip], tmp_path: Path, colours: int) -> None:
    rng = np.random.default_rng(0)
    palette = rng.integers(0, 256, (colours, 3), dtype=np.uint8)
    frames = palette[rng.integers(0, colours, (5, 32, 48))]
    back = [frame for frame, _ in shown(clip_of(frames).save(tmp_path / "out.gif"))]
    np.testing.assert_array_equal(np.stack(back), frames)


def test_gif_of_many_colours_stays_close(clip_of: Callable[..., Clip], tmp_path: Path) -> None:
    rows, columns = np.mgrid[0:64, 0:64]
    frames = np.stack([np.stack([4 * rows, 4 * columns, 0 * rows + 20 * i], axis=-1) for i in range(5)])
    path = clip_of(frames.astype(np.uint8)).save(tmp_path / "out.gif")
    back = np.stack([frame for frame, _ in shown(path)]).astype(int)
    assert np.abs(back - frames).mean() < 12  # measured 8.4: dithered over 20,480 colours
    assert abs(back.mean() - frames.mean()) < 1  # dithering keeps the mean


def test_webp_is_lossless(noise: Clip, tmp_path: Path) -> None:
    frames = [frame for frame, _ in shown(noise.save(tmp_path / "out.webp"))]
    np.testing.assert_array_equal(np.stack(frames), noise.frames)


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_equal_neighbours_keep_their_time(
    circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path, suffix: str
) -> None:
    still = circle.frames[[0, 0, 0, 1]]
    whole = shown(clip_of(still, fps=10.0).save(tmp_path / f"out{suffix}"))
    assert [show_ms for _, show_ms in whole] == [300, 100]
    np.testing.assert_array_equal(whole[0][0], circle.frames[0])


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_animation_of_one_frame_is_one_picture(
    circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path, suffix: str
) -> None:
    path = clip_of(circle.frames[:1]).save(tmp_path / f"out{suffix}")
    with Image.open(path) as image:
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), circle.frames[0])


def test_png_of_one_frame_is_the_file(circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path) -> None:
    saved = clip_of(circle.frames[:1]).save(tmp_path / "out.png")
    assert list(tmp_path.iterdir()) == [saved] == [tmp_path / "out.png"]
    with Image.open(saved) as image:
        np.testing.assert_array_equal(np.asarray(image), circle.frames[0])


def test_png_of_more_frames_is_numbered_files(circle: Clip, tmp_path: Path) -> None:
    assert circle.save(tmp_path / "out.png") == tmp_path / "out-0001.png"
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"out-000{index}.png" for index in range(1, 8)]
    for file, frame in zip(files, circle.frames, strict=True):
        with Image.open(file) as image:
            np.testing.assert_array_equal(np.asarray(image), frame)


def test_npy_is_the_array(noise: Clip, tmp_path: Path) -> None:
    back = np.load(noise.save(tmp_path / "out.npy"), allow_pickle=False)
    assert back.dtype == np.uint8
    np.testing.assert_array_equal(back, noise.frames)
