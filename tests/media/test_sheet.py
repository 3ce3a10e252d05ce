"""Contact sheets show the right frames, untouched, under their labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from fv_core.errors import RequestError
from fv_core.media import Clip, contact_sheet

LABEL, GAP = 22, 4  # pixels of a one-line label, and around a frame


def drawn(path: Path) -> npt.NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image)


def numbered_clip(clip_of: Callable[..., Clip], frames: int) -> Clip:
    """Frame i is the grey level i + 1, so that a frame tells which it is."""
    grey = np.arange(1, frames + 1, dtype=np.uint8)[:, None, None, None]
    return clip_of(np.broadcast_to(grey, (frames, 64, 64, 3)))


@pytest.mark.parametrize(
    ("frames", "columns", "expected"),
    [
        (17, 5, [0, 4, 8, 12, 16]),
        (81, 3, [0, 40, 80]),
        (6, 4, [0, 2, 3, 5]),
        (3, 8, [0, 1, 2]),
        (9, 1, [0]),
        (1, 4, [0]),
    ],
)
def test_sheet_shows_evenly_spaced_frames(
    clip_of: Callable[..., Clip], tmp_path: Path, frames: int, columns: int, expected: list[int]
) -> None:
    path = contact_sheet([("grey", numbered_clip(clip_of, frames))], tmp_path / "sheet.png", columns=columns)
    picture = drawn(path)
    assert picture.shape == (LABEL + 64 + 2 * GAP, (64 + 2 * GAP) * len(expected), 3)
    middles = picture[LABEL + GAP + 32, GAP + 32 :: 64 + 2 * GAP, 0]
    assert [int(level) - 1 for level in middles] == expected


def test_sheet_repeats_pixels_when_it_enlarges(circle: Clip, tmp_path: Path) -> None:
    picture = drawn(contact_sheet([("disc", circle)], tmp_path / "sheet.png", columns=2, scale=2))
    tile = picture[LABEL + GAP :, GAP:][:128, :192]
    np.testing.assert_array_equal(tile, circle.frames[0].repeat(2, axis=0).repeat(2, axis=1))


def test_sheet_has_a_labelled_row_per_clip(
    circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path
) -> None:
    rows = [("wide", circle), ("narrow", numbered_clip(clip_of, 2)), ("", circle)]
    picture = drawn(contact_sheet(rows, tmp_path / "sheet.png", columns=3))
    row = LABEL + 64 + 2 * GAP
    assert picture.shape == (3 * row, 3 * (96 + 2 * GAP), 3)
    inks = [(picture[index * row : index * row + LABEL] < 128).any() for index in range(3)]
    assert inks == [True, True, False]
    assert (picture[row + LABEL : 2 * row, 2 * (64 + 2 * GAP) :] == 255).all()  # beside the shorter row


@pytest.mark.parametrize("label", ["word " * 60, "unbroken" * 40, "W" * 200])
def test_long_labels_wrap_and_are_not_cut(circle: Clip, tmp_path: Path, label: str) -> None:
    picture = drawn(contact_sheet([(label, circle)], tmp_path / "sheet.png", columns=3))
    head = picture[: picture.shape[0] - 64 - 2 * GAP]
    assert head.shape[0] > 2 * LABEL
    assert (head[:, :2] == 255).all()
    assert (head[:, -2:] == 255).all()
    assert (head[-18:] < 128).any()  # the last line is used


@pytest.mark.parametrize(
    ("name", "columns", "scale"),
    [("sheet.jpg", 8, 1), ("sheet.png", 0, 1), ("sheet.png", 8, 0), ("no/s.png", 8, 1)],
)
def test_sheet_refuses_what_it_cannot_draw(
    circle: Clip, tmp_path: Path, name: str, columns: int, scale: int
) -> None:
    with pytest.raises(RequestError) as caught:
        contact_sheet([("disc", circle)], tmp_path / name, columns=columns, scale=scale)
    assert caught.value.code == "FV315"
    assert list(tmp_path.iterdir()) == []


def test_sheet_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="would be empty"):
        contact_sheet([], tmp_path / "sheet.png")


def test_sheet_never_replaces_unless_told(circle: Clip, tmp_path: Path) -> None:
    (tmp_path / "sheet.png").write_text("mine")
    with pytest.raises(RequestError, match="exists already"):
        contact_sheet([("disc", circle)], tmp_path / "sheet.png")
    contact_sheet([("disc", circle)], tmp_path / "sheet.png", force=True)
    assert drawn(tmp_path / "sheet.png").shape[2] == 3
