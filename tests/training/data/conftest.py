"""Data sets of real files, written by fv's own encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fv_core.card import ModelCard
from fv_core.media.images import encode_png
from fv_core.media.video import encode_mp4, encode_webm
from fv_core.plugins import find_card
from fv_core.training.contract import DataContext, Pixels
from fv_core.training.data.folder import Config, FolderSource
from fv_core.training.data.report import FileRow

Frames = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A folder to write clips into, and to open as a source for a card."""

    folder: Path
    card: ModelCard

    def clip(
        self,
        name: str,
        frames: int = 9,
        size: tuple[int, int] = (32, 32),
        fps: float | Fraction = 8,
        caption: str | None = "a moving square",
    ) -> Path:
        """Writes a clip `frames` long of `size` (height, width), in the format of its suffix, with its caption."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pictures = moving(frames, *size)
        encode = {".mp4": encode_mp4, ".webm": encode_webm}.get(path.suffix)
        path.write_bytes(encode(pictures, Fraction(fps), "") if encode else encode_png(pictures[0]))
        if caption is not None:
            path.with_suffix(".txt").write_text(caption)
        return path

    def open(self, path: str = ".", **keys: object) -> FolderSource:
        context = DataContext(card=self.card, content=Pixels, seed=0, folder=self.folder)
        keys = {"buckets": ((9, 32, 32),), **keys}
        return FolderSource(Config(path=path, **keys), context)  # type: ignore[arg-type]

    def rows(self, path: str = ".", **keys: object) -> Mapping[str, FileRow]:
        return {row.file: row for row in self.open(path, **keys).report.rows}


def moving(frames: int, height: int, width: int) -> Frames:
    """A white square that takes a step with each frame over a grey that grows brighter, so that all frames differ."""
    pictures = np.empty((frames, height, width, 3), np.uint8)
    for index, picture in enumerate(pictures):
        picture[:] = 40 + 4 * index % 120
        left = (2 * index) % (width - 8)
        picture[height // 2 - 4 : height // 2 + 4, left : left + 8] = 250
    return pictures


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    return DataSet(folder=tmp_path, card=find_card("wan21/micro"))


@pytest.fixture
def moving_of() -> Callable[[int, int, int], Frames]:
    return moving
