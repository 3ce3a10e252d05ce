"""Folders of real clips: what becomes of every file is told before the first step, and is what happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from fv_core.errors import FvError, TrainError
from fv_core.media.timed import timed_pictures
from fv_core.request import Size
from fv_core.training.contract import Bucket, DataContext, Pixels, Sample
from fv_core.training.data import clips, folder
from fv_core.training.data.report import FileRow

Frames = np.ndarray[Any, np.dtype[np.uint8]]
SMALL = Bucket(frames=9, height=32, width=32)


def pixels(sample: Sample) -> torch.Tensor:
    return cast(Pixels, sample.content).frames


def decoded(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.stack([picture.pixels for picture in timed_pictures(path)]))


def test_a_clip_of_the_buckets_geometry_and_rate_keeps_every_bit(data: Any) -> None:
    path = data.clip("a.mp4", caption="a square")
    source = data.open()
    sample = source.sample(0, 0)
    assert (len(source), source.bucket(0), sample.id, sample.caption) == (1, SMALL, "a.mp4", "a square")
    assert torch.equal(pixels(sample), decoded(path))
    (row,) = source.report.rows
    assert row == FileRow(
        file="a.mp4", size=Size(32, 32), frames=9, fps=Fraction(8), resampled=9, bucket=SMALL, told=()
    )


def test_a_clip_of_another_rate_is_resampled_by_its_times_and_told(data: Any) -> None:
    """24 frames per second at 8: every third picture."""
    path = data.clip("a.mp4", frames=27, fps=24)
    source = data.open()
    assert torch.equal(pixels(source.sample(0, 0)), decoded(path)[:25:3])
    assert source.report.rows[0].resampled == 9
    assert source.report.rows[0].told == ("resampled from 24 fps",)


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
def test_an_odd_rate_is_told_as_it_is(data: Any, suffix: str) -> None:
    data.clip(f"a{suffix}", frames=34, fps=Fraction(30000, 1001))
    (row,) = data.open().report.rows
    assert float(row.fps) == pytest.approx(29.97, abs=0.05)
    assert row.resampled == 9 and row.told[0].startswith("resampled from 29.9")


def test_a_slower_clip_repeats_frames_and_says_so(data: Any) -> None:
    path = data.clip("a.mp4", frames=5, fps=4)
    source = data.open()
    assert source.report.rows[0].told == ("resampled from 4 fps, frames repeated",)
    assert torch.equal(pixels(source.sample(0, 0)), decoded(path)[[0, 0, 1, 1, 2, 2, 3, 3, 4]])


def test_the_rate_is_the_models_unless_the_data_says_otherwise(data: Any) -> None:
    data.clip("a.mp4", frames=9, fps=16)
    assert data.card.defaults.fps == 8
    assert data.open().report.rows[0].resampled == 5
    assert data.open(fps=16.0).report.rows[0].resampled == 9
    with pytest.raises(FvError) as caught:
        data.open(fps=-1.0)
    assert caught.value.code == "FV307"


def test_short_clips_are_dropped_with_both_counts_and_long_ones_are_cut(data: Any) -> None:
    data.clip("short.mp4", frames=16, fps=16)
    data.clip("long.mp4", frames=12)
    rows = data.rows()
    assert rows["short.mp4"].bucket is None and rows["short.mp4"].frames == 16
    assert rows["short.mp4"].told == ("is too short: 8 frames at 8 fps, the shortest bucket has 9",)
    assert rows["long.mp4"].told == ("the first 9 of 12 frames",)


def test_images_go_to_buckets_of_one_frame_alone(data: Any) -> None:
    data.clip("a.png", frames=1)
    assert data.rows()["a.png"].told == ("is an image, and there is no bucket of 1 frame",)
    source = data.open(buckets=((1, 16, 16),))
    assert source.report.rows[0].told == ("scaled to 16x16",)
    assert source.report.rows[0].fps is None
    assert pixels(source.sample(0, 0)).shape == (1, 16, 16, 3)
    data.clip("b.mp4")
    assert data.rows(buckets=((1, 16, 16),))["b.mp4"].told == ("is a video, and all buckets are of 1 frame",)


def test_what_cannot_be_read_is_dropped_with_its_reason_and_the_rest_is_kept(data: Any) -> None:
    whole = data.clip("whole.mp4").read_bytes()
    data.clip("cut.mp4").write_bytes(whole[: len(whole) // 2])
    data.clip("words.mp4").write_text("these are words")
    data.clip("gone.mp4").unlink()
    (data.folder / "gone.mp4").symlink_to(data.folder / "nowhere.mp4")
    data.clip("mute.mp4", caption=None)
    data.clip("empty.mp4", caption=" ")
    rows = data.rows()
    assert [name for name, row in rows.items() if row.bucket] == ["whole.mp4"]
    reasons = {name: row.told[0] for name, row in rows.items() if row.bucket is None}
    assert reasons["cut.mp4"].startswith("cannot be decoded")
    assert reasons["words.mp4"] == "is of no format that is read, or damaged"
    assert reasons["gone.mp4"] == "cannot be read: No such file or directory"
    assert reasons["mute.mp4"] == "has no caption: there is no mute.txt beside it"
    assert reasons["empty.mp4"] == "has an empty caption"
    assert "no clip of the same name" not in " ".join(reasons.values())


def test_what_is_cropped_is_told_and_the_largest_part_that_fits(data: Any) -> None:
    path = data.clip("wide.mp4", size=(32, 64))
    source = data.open()
    assert source.report.rows[0].told == ("cropped to 32x32",)
    assert torch.equal(pixels(source.sample(0, 0)), decoded(path)[:, :, 16:48])


def test_a_list_names_files_and_captions(data: Any) -> None:
    data.clip("clips/a.mp4", caption=None)
    lines = [{"file": "clips/a.mp4", "caption": "one"}, {"file": "clips/a.mp4", "caption": "two"}]
    (data.folder / "set.jsonl").write_text("\n".join(map(json.dumps, lines)))
    source = data.open("set.jsonl")
    assert [source.sample(index, 0).caption for index in range(2)] == ["one", "two"]
    assert [source.sample(index, 0).id for index in range(2)] == ["clips/a.mp4", "clips/a.mp4 #2"]


def test_the_table_shows_every_file_every_bucket_and_the_sum(data: Any) -> None:
    data.clip("a.mp4", frames=27, fps=24)
    data.clip("b.mp4", frames=3)
    data.clip("c.mp4", frames=4)
    report = data.open(buckets=((9, 32, 32), (17, 32, 32))).report
    assert report.lines() == [
        "file   frames  size   fps  at 8 fps  bucket",
        "a.mp4  27      32x32  24   9         9x32x32  resampled from 24 fps",
        "b.mp4  3       32x32  8    3         dropped  is too short: 3 frames at 8 fps, the shortest bucket has 9",
        "c.mp4  4       32x32  8    4         dropped  is too short: 4 frames at 8 fps, the shortest bucket has 9",
        "",
        "frames  height  width  samples",
        "9       32      32     1",
        "17      32      32     0",
        "",
        "1 of 3 files are kept; 2 dropped: is too short",
    ]
    assert [row.file for row in report.dropped] == ["b.mp4", "c.mp4"]


def test_nothing_left_is_an_error_that_counts_the_reasons(data: Any) -> None:
    data.clip("b.mp4", frames=3)
    data.clip("c.mp4", caption=None)
    config = folder.Config(path=".", buckets=((9, 32, 32),))
    with pytest.raises(TrainError) as caught:
        folder.build(config, DataContext(card=data.card, content=Pixels, seed=0, folder=data.folder))
    assert caught.value.code == "FV722"
    assert "0 of 2 files are kept; 1 dropped: is too short; 1 dropped: has no caption" in caught.value.rule
    assert "c.mp4 has no caption: there is no c.txt beside it" in caught.value.rule


def test_a_file_that_changes_during_the_run_stops_it(data: Any) -> None:
    path = data.clip("a.mp4")
    source = data.open()
    data.clip("a.mp4", frames=10)
    with pytest.raises(TrainError) as caught:
        source.sample(0, 0)
    assert (caught.value.code, caught.value.name) == ("FV723", "a.mp4")
    path.unlink()
    with pytest.raises(TrainError, match="FV723"):
        source.sample(0, 0)


def test_no_more_is_read_of_a_clip_than_it_takes(
    data: Any, monkeypatch: pytest.MonkeyPatch, moving_of: Callable[[int, int, int], Frames]
) -> None:
    """Bounded decoding: pictures come one by one, and those after the last that is shown are never made."""
    data.clip("a.mp4", frames=60)
    source = data.open()
    read = 0

    def counted(path: Path) -> Any:
        nonlocal read
        for picture in timed_pictures(path):
            read += 1
            yield picture

    monkeypatch.setattr(clips, "timed_pictures", counted)
    source.sample(0, 0)
    assert read == 9


@pytest.mark.parametrize("threads", [1, 8])
def test_what_is_kept_does_not_depend_on_how_many_threads_read(
    data: Any, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    for index in range(12):
        data.clip(f"{index:02}.mp4", frames=3 + 2 * index)
    monkeypatch.setattr("os.cpu_count", lambda: threads)
    report = data.open().report
    assert [row.file for row in report.rows] == [f"{index:02}.mp4" for index in range(12)]
    assert [row.frames for row in report.rows] == [3 + 2 * index for index in range(12)]
    assert [row.bucket is not None for row in report.rows] == [3 + 2 * index >= 9 for index in range(12)]


def test_what_decides_the_pixels_is_told_without_reading_them(data: Any) -> None:
    """Two sources of one folder that show other pixels have other origins, and equal ones have equal origins."""
    data.clip("a.mp4", frames=27, fps=24, size=(48, 64))
    origins = [
        data.open(**keys).outline(0, 0).origin
        for keys in (
            {},
            {"fps": 12.0},
            {"buckets": ((5, 32, 32),)},
            {"buckets": ((9, 32, 48),)},
            {"buckets": ((9, 48, 32),)},
        )
    ]
    assert len({json.dumps(origin) for origin in origins}) == len(origins)
    assert data.open().outline(0, 3).origin == origins[0]
    data.clip("a.mp4", frames=28, fps=24, size=(48, 64))
    assert data.open().outline(0, 0).origin != origins[0]
