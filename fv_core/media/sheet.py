"""Contact sheets: one labelled row of evenly spaced frames per clip, as one PNG."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from fv_core.errors import RequestError
from fv_core.media.atomic import refusing, unusable, write_files
from fv_core.media.clip import Clip
from fv_core.media.enlarge import check_scale, enlarged
from fv_core.media.images import encode_png
from fv_core.media.output import check_output

_GAP: Final = 4  # pixels between frames and around rows
_LINE: Final = 18  # pixels of a label line
_FONT_SIZE: Final = 13
_PAPER: Final = (255, 255, 255)
_INK: Final = (0, 0, 0)


def write_sheet(
    clips: Sequence[tuple[str, Clip]], path: Path, *, columns: int, scale: int, force: bool
) -> Path:
    """Writes the sheet to `path`, a `.png`, whole or not at all.

    Args:
        clips: label and clip of each row, at least one. Labels wrap; letters that Pillow's own font lacks
            (it is Latin) show as boxes.
        columns: most frames in a row, at least 1: the first, the last and evenly between them. A shorter clip
            shows all of its frames once.
        scale: whole factor by which frames are enlarged, nearest neighbour; 2 or 3 suits clips of 64x64.

    Returns:
        `path`.

    Raises:
        RequestError: the path, columns or scale are not usable, or there is no clip (FV315).
        ResourceError: the disk is full (FV403).
    """
    check_scale(scale)
    if path.suffix.lower() != ".png":
        raise unusable(path, "is not a .png file", "End its name in .png.")
    if not clips or columns < 1:
        raise RequestError(
            "FV315", name="contact sheet", value=f"{len(clips)} clips, {columns} columns", rule="would be empty",
            legal="at least one clip and one column", remedy="Give it something to show.",
        )  # fmt: skip
    check_output(path, force=force)
    strips = [_strip(clip.frames, columns, scale) for _, clip in clips]
    width = max(strip.shape[1] for strip in strips)
    rows = [_row(label, strip, width) for (label, _), strip in zip(clips, strips, strict=True)]
    with refusing(path):
        write_files({path: encode_png(np.concatenate(rows))}, force=force)
    return path


def _strip(frames: npt.NDArray[np.uint8], columns: int, scale: int) -> npt.NDArray[np.uint8]:
    """[F, H, W, 3] as one picture [h, w, 3] of frames side by side, a gap around each."""
    chosen = np.linspace(0, len(frames) - 1, min(columns, len(frames))).round().astype(int)
    border = ((0, 0), (_GAP, _GAP), (_GAP, _GAP), (0, 0))
    tiles = np.pad(enlarged(frames[chosen], scale), border, constant_values=_PAPER[0])
    return np.concatenate(list(tiles), axis=1)


def _row(label: str, strip: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    head = _label(label, width)
    body = np.pad(strip, ((0, 0), (0, width - strip.shape[1]), (0, 0)), constant_values=_PAPER[0])
    return np.concatenate([head, body])


def _label(text: str, width: int) -> npt.NDArray[np.uint8]:
    font = ImageFont.load_default(_FONT_SIZE)
    lines = _wrapped(" ".join(text.split()), font, width - 2 * _GAP) or [""]
    image = Image.new("RGB", (width, _LINE * len(lines) + _GAP), _PAPER)
    draw = ImageDraw.Draw(image)
    for index, line in enumerate(lines):
        draw.text((_GAP, _GAP + index * _LINE), line, fill=_INK, font=font)
    return np.asarray(image)


def _wrapped(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, room: int) -> list[str]:
    """Lines of at most `room` pixels, broken at spaces, or within a word that alone is wider."""
    lines = []
    while text:
        prefixes = range(1, len(text) + 1)
        fitting = max(
            1, bisect(prefixes, float(room), key=lambda length: float(font.getlength(text[:length])))
        )
        space = text.rfind(" ", 0, fitting + 1)
        cut = space if fitting < len(text) and space > 0 else fitting
        lines.append(text[:cut])
        text = text[cut:].lstrip()
    return lines
