"""What becomes of every listed file, as rows and as a table: kept, resampled, cropped or dropped, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from fv_core.request import Size
from fv_core.training.contract import Bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """What becomes of one listed file.

    Args:
        file: as the data set lists it.
        size, frames, fps: the file's own; None and 0 where it could not be read, an image has no fps.
        resampled: its frames at the data set's rate.
        bucket: None: it is dropped.
        told: what is done to it, or why it is dropped.
    """

    file: str
    size: Size | None = None
    frames: int = 0
    fps: Fraction | None = None
    resampled: int = 0
    bucket: Bucket | None = None
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRow:
    """How many samples a bucket has; one that none goes to is told too."""

    bucket: Bucket
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All files of a data set, and the rate in frames per second that they are resampled to."""

    rows: Sequence[FileRow]
    buckets: Sequence[BucketRow]
    fps: float

    @property
    def dropped(self) -> tuple[FileRow, ...]:
        return tuple(row for row in self.rows if row.bucket is None)

    def summary(self) -> str:
        """One line: what is kept, and what is dropped by reason."""
        kept = len(self.rows) - len(self.dropped)
        reasons = Counter(row.told[0].partition(":")[0] for row in self.dropped)
        told = "".join(f"; {count} dropped: {reason}" for reason, count in reasons.most_common())
        return f"{kept} of {len(self.rows)} files are kept{told}"

    def lines(self) -> list[str]:
        """The tables of files and buckets as text."""
        files: list[tuple[str, ...]] = [
            ("file", "frames", "size", "fps", f"at {self.fps:g} fps", "bucket", "")
        ]
        files += [_cells(row) for row in self.rows]
        counts: list[tuple[str, ...]] = [("frames", "height", "width", "samples")]
        counts += [
            (*map(str, (row.bucket.frames, row.bucket.height, row.bucket.width)), str(row.samples))
            for row in self.buckets
        ]
        return [*_aligned(files), "", *_aligned(counts), "", self.summary()]


def _cells(row: FileRow) -> tuple[str, ...]:
    bucket = row.bucket
    return (
        row.file,
        str(row.frames or "-"),
        str(row.size or "-"),
        f"{float(row.fps):.5g}" if row.fps else "-",
        str(row.resampled or "-"),
        f"{bucket.frames}x{bucket.height}x{bucket.width}" if bucket else "dropped",
        "; ".join(row.told),
    )


def _aligned(table: Sequence[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    )
