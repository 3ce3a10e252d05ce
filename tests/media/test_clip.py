"""Clips hold real frames only, and float video becomes uint8 by rounding, never by clamping."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fv_core.errors import RequestError, RunError
from fv_core.media import Clip, frames_from_video


def test_frames_from_video_rounds_every_value() -> None:
    levels = torch.arange(256, dtype=torch.float32) / 255
    nudged = (levels + torch.linspace(-0.49, 0.49, 256) / 255).clamp(0, 1)
    video = nudged.repeat(3, 1).T.reshape(1, 16, 16, 3)
    frames = frames_from_video(video)
    assert frames.dtype == np.uint8
    assert frames.reshape(-1, 3)[:, 0].tolist() == list(range(256))


def test_frames_from_video_takes_half_precision_and_gradients() -> None:
    video = torch.full((2, 4, 4, 3), 0.5, dtype=torch.bfloat16, requires_grad=True)
    assert np.unique(frames_from_video(video)).tolist() == [128]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_frames_from_video_refuses_what_is_not_finite(value: float) -> None:
    video = torch.zeros(2, 4, 4, 3)
    video[1, 2, 3, 0] = value
    with pytest.raises(RunError) as caught:
        frames_from_video(video)
    assert caught.value.code == "FV501"


@pytest.mark.parametrize("value", [-0.001, 1.001, 255.0])
def test_frames_from_video_refuses_values_outside_the_unit_range(value: float) -> None:
    video = torch.zeros(2, 4, 4, 3)
    video[1, 2, 3, 0] = value
    with pytest.raises(RunError, match=r"\[0, 1\]") as caught:
        frames_from_video(video)
    assert caught.value.code == "FV502"


@pytest.mark.parametrize(
    "video",
    [
        torch.zeros(2, 3, 4, 4),
        torch.zeros(4, 4, 3),
        torch.zeros(0, 4, 4, 3),
        torch.zeros(2, 4, 4, 3, dtype=torch.uint8),
    ],
)
def test_frames_from_video_refuses_other_layouts(video: torch.Tensor) -> None:
    with pytest.raises(RunError, match="are not a video"):
        frames_from_video(video)


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((2, 4, 4, 3), dtype=np.float32),
        np.zeros((2, 4, 4, 4), dtype=np.uint8),
        np.zeros((4, 4, 3), dtype=np.uint8),
        np.zeros((2, 0, 4, 3), dtype=np.uint8),
    ],
)
def test_clip_refuses_frames_of_another_kind(
    clip_of: Callable[..., Clip], circle: Clip, frames: np.ndarray
) -> None:
    with pytest.raises(RunError, match="are not a video"):
        Clip(frames=frames, fps=16.0, request=circle.request, used=circle.used)


def test_clips_are_equal_only_to_themselves(clip_of: Callable[..., Clip], circle: Clip) -> None:
    assert circle == circle
    assert circle != clip_of(circle.frames)
    assert len({circle, circle}) == 1
    assert circle.tensors == {}


def test_save_takes_views_of_arrays(clip_of: Callable[..., Clip], circle: Clip, tmp_path: Path) -> None:
    view = circle.frames[::2, :, ::-1]
    for suffix in (".mp4", ".webm", ".gif", ".webp", ".png", ".npy"):
        whole = clip_of(view.copy()).save(tmp_path / f"whole{suffix}")
        seen = clip_of(view).save(tmp_path / f"view{suffix}")
        assert seen.read_bytes() == whole.read_bytes(), suffix


def test_save_enlarges_by_repeating_pixels(circle: Clip, tmp_path: Path) -> None:
    enlarged = np.load(circle.save(tmp_path / "out.npy", scale=3))
    assert enlarged.shape == (7, 192, 288, 3)
    for row in range(3):
        for column in range(3):
            np.testing.assert_array_equal(enlarged[:, row::3, column::3], circle.frames)


@pytest.mark.parametrize("scale", [0, -1, 1.5, True, "2"])
def test_save_refuses_other_scales(circle: Clip, tmp_path: Path, scale: int) -> None:
    with pytest.raises(RequestError, match="whole number of at least 1") as caught:
        circle.save(tmp_path / "out.png", scale=scale)
    assert caught.value.code == "FV315"
    assert list(tmp_path.iterdir()) == []


def test_save_takes_text_and_any_case_of_suffix(circle: Clip, tmp_path: Path) -> None:
    saved = circle.save(str(tmp_path / "Out.PNG"))
    assert saved == tmp_path / "Out-0001.PNG"
    with Image.open(saved) as image:
        np.testing.assert_array_equal(np.asarray(image), circle.frames[0])
