"""What becomes of a file: a clip in a bucket, or nothing; and the pictures of a clip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from fv_core.media.timed import timed_pictures
from fv_core.training.contract import Bucket
from fv_core.training.data import resample
from fv_core.training.data.buckets import choose
from fv_core.training.data.fit import changes, fitted
from fv_core.training.data.listing import Entry
from fv_core.training.data.measure import Measured
from fv_core.training.data.report import FileRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A kept file: which pictures of it are shown, and what tells its content from that of others."""

    entry: Entry
    bucket: Bucket
    picks: tuple[int, ...]
    sha256: str


class Judge:
    """Decides what becomes of a file."""

    def __init__(self, buckets: Sequence[Bucket], rate: Fraction) -> None:
        self._buckets = buckets
        self._rate = rate

    def __call__(self, entry: Entry, measured: Measured | str) -> tuple[FileRow, Clip | None]:
        if isinstance(measured, str):
            return FileRow(file=entry.id, told=(entry.problem or measured,)), None
        times, size = measured.times, measured.size
        resampled = resample.count_at(times, self._rate, measured.tick)
        row = FileRow(
            file=entry.id,
            size=size,
            frames=len(times),
            fps=resample.own_rate(times),
            resampled=resampled,
            bucket=choose(self._buckets, resampled, size),
        )
        if row.bucket is None:
            return replace(row, told=(self._unfit(resampled),)), None
        told = (*measured.notes, *self._changed(measured, row.bucket, resampled))
        picks = resample.picks(times, self._rate, row.bucket.frames)
        clip = Clip(entry=entry, bucket=row.bucket, picks=picks, sha256=measured.sha256)
        return replace(row, told=told), clip

    def _changed(self, measured: Measured, bucket: Bucket, resampled: int) -> Iterator[str]:
        times = measured.times
        if not resample.is_even(times, self._rate, measured.tick):
            own = float(resample.own_rate(times) or 0)
            yield f"resampled from {own:.5g} fps" + (", frames repeated" if own < self._rate else "")
        if bucket.frames < resampled:
            yield f"the first {bucket.frames} of {resampled} frames"
        yield from changes(measured.size, bucket)

    def _unfit(self, frames: int) -> str:
        if frames == 1:
            return "is an image, and there is no bucket of 1 frame"
        shortest = min((one.frames for one in self._buckets if one.frames > 1), default=0)
        if not shortest:
            return "is a video, and all buckets are of 1 frame"
        return (
            f"is too short: {frames} frames at {float(self._rate):g} fps, the shortest bucket has {shortest}"
        )


def read_frames(clip: Clip) -> Tensor:
    """uint8 [F, height, width, 3]: the pictures of a clip, each read once and kept as often as it is shown.

    Raises:
        RequestError: FV320, the file cannot be read any more.
    """
    bucket, shown = clip.bucket, Counter(clip.picks)
    frames = np.empty((bucket.frames, bucket.height, bucket.width, 3), np.uint8)
    filled = 0
    with closing(timed_pictures(clip.entry.path)) as pictures:
        for index, picture in enumerate(pictures):
            if repeats := shown.get(index, 0):
                frames[filled : filled + repeats] = fitted(picture.pixels, bucket)
                filled += repeats
            if filled == bucket.frames:
                break
    return torch.from_numpy(frames)
