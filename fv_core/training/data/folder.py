"""The source `folder`: images and videos with captions, from a folder or a list of files.

Every file is read to its end before the first step, so that none can fail in the middle of a run, and what becomes of
it is told. Afterwards pictures are read as they are needed: a clip's, one after the other, and no more than it takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fv_core.errors import RequestError, TrainError
from fv_core.media import exact_rate
from fv_core.training.contract import Bucket, DataContext, Pixels, Sample
from fv_core.training.data.buckets import legal_buckets
from fv_core.training.data.clips import Judge, read_frames
from fv_core.training.data.encoded import Outline
from fv_core.training.data.listing import listed
from fv_core.training.data.measure import file_hash, measure_all
from fv_core.training.data.report import BucketRow, Report

_FIT = "cover bicubic 1"
"""Names how pictures are brought to a bucket; another way has another name, and other latents in a cache."""

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Keys of the source `folder` in the table [data].

    Args:
        path: a folder, a .jsonl or a .csv file; see `fv_core.training.data.listing`.
        buckets: [frames, height, width] each; none: one of the model's default size and frames.
        fps: what videos are resampled to; None is the model's default.
    """

    path: str
    buckets: tuple[tuple[int, ...], ...] = ()
    fps: float | None = None


class FolderSource:
    """The clips of a data set that are kept; `report` tells of all that it lists.

    Raises:
        TrainError: FV720 there is no such data set, FV721 a bucket that the model has no latents for.
        RequestError: FV307, a rate that no container holds.
    """

    def __init__(self, config: Config, context: DataContext) -> None:
        buckets = legal_buckets(config.buckets, context.card)
        fps = context.card.defaults.fps if config.fps is None else config.fps
        judge = Judge(buckets, exact_rate(fps))
        entries = listed(context.folder / config.path)
        found = measure_all(None if entry.problem else entry.path for entry in entries)
        judged = [judge(entry, measured) for entry, measured in zip(entries, found, strict=True)]
        self._clips = [clip for _, clip in judged if clip is not None]
        counts = [
            BucketRow(bucket=one, samples=sum(clip.bucket == one for clip in self._clips)) for one in buckets
        ]
        self.report = Report(rows=[row for row, _ in judged], buckets=counts, fps=fps)

    def __len__(self) -> int:
        return len(self._clips)

    def bucket(self, index: int) -> Bucket:
        return self._clips[index].bucket

    def sample(self, index: int, epoch: int) -> Sample:
        """Raises:
        TrainError: FV723, the file is no longer the one that the run began with.
        """
        clip = self._clips[index]
        try:
            same = file_hash(clip.entry.path) == clip.sha256
            content = Pixels(frames=read_frames(clip)) if same else None
        except (OSError, RequestError):
            content = None
        if content is None:
            raise TrainError(
                "FV723",
                name=clip.entry.id,
                rule="is no longer the file that was measured when the run began",
                remedy="Bring it back, or start the run again: what is kept may be another choice now.",
            )
        return Sample(id=clip.entry.id, caption=clip.entry.caption, content=content)

    def outline(self, index: int, epoch: int) -> Outline:
        clip = self._clips[index]
        bucket = clip.bucket
        origin: dict[str, str | int] = {
            "file": clip.sha256,
            "pictures": " ".join(map(str, clip.picks)),
            "frames": bucket.frames,
            "height": bucket.height,
            "width": bucket.width,
            "fit": _FIT,
        }
        return Outline(id=clip.entry.id, caption=clip.entry.caption, origin=origin)


def build(config: Config, context: DataContext) -> FolderSource:
    """Raises: as `FolderSource`; FV722, it keeps no file."""
    source = FolderSource(config, context)
    if not len(source):
        raise TrainError(
            "FV722",
            name="data.path",
            value=config.path,
            rule=f"has no clip to train on: {source.report.summary()} ({_first(source.report)})",
            remedy="Add buckets that the clips fill, or correct the files.",
        )
    return source


def _first(report: Report) -> str:
    """Some of the files, with the reasons why they are dropped."""
    shown = [f"{row.file} {'; '.join(row.told)}" for row in report.dropped[:_SHOWN]]
    return ", ".join(shown + ["..."] * (len(report.dropped) > _SHOWN))
