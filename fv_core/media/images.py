"""Frames to GIF, animated WebP and PNG with Pillow, and to a numpy array file."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from fv_core.media.rate import delays

_COLOURS: Final = 256  # of a GIF palette
_SAMPLES: Final = 1 << 20  # pixels a GIF palette is chosen from when the clip has more colours than that
_IMAGE_DESCRIPTION: Final = 0x010E  # EXIF tag


def encode_gif(frames: npt.NDArray[np.uint8], rate: Fraction, comment: str) -> bytes:
    """A GIF that repeats for ever, one palette for all frames.

    A clip of at most 256 colours keeps them exactly; any other is dithered to 256. GIF counts time in 1/100 s:
    at 16 frames per second frames last 6 or 7 of these, and the whole is right to half of one. Equal neighbours
    are stored once, with the sum of their delays.
    """
    images = _paletted(frames)
    # Pillow takes milliseconds
    show_ms = [10 * delay for delay in delays(len(frames), rate, 100)]
    return _animation("GIF", images, show_ms, comment=comment.encode(), optimize=False)


def encode_webp(frames: npt.NDArray[np.uint8], rate: Fraction, comment: str) -> bytes:
    """A lossless WebP animation that repeats for ever, timed in 1/1000 s; the comment is its EXIF description.

    Equal neighbours are stored once, with the sum of their delays.
    """
    exif = Image.Exif()
    exif[_IMAGE_DESCRIPTION] = comment
    images = [Image.fromarray(frame) for frame in frames]
    return _animation("WEBP", images, delays(len(frames), rate, 1000), lossless=True, exif=exif)


def encode_png(frame: npt.NDArray[np.uint8], comment: str = "") -> bytes:
    """One frame [H, W, 3] as PNG, with `comment` as its Comment text unless it is empty."""
    text = PngInfo()
    if comment:
        text.add_text("Comment", comment)
    memory = io.BytesIO()
    Image.fromarray(frame).save(memory, "PNG", pnginfo=text)
    return memory.getvalue()


def encode_npy(array: npt.NDArray[np.uint8] | npt.NDArray[np.float32]) -> bytes:
    """The frames [F, H, W, 3] or actions [T, D] themselves; the format has no place for metadata."""
    memory = io.BytesIO()
    np.save(memory, array, allow_pickle=False)
    return memory.getvalue()


def read_comment(path: Path) -> str:
    """What the encoders here stored as `comment`, "" when there is none.

    Raises:
        OSError: the file cannot be read or is no image.
        ValueError: it is so large an image that Pillow refuses it.
    """
    try:
        with Image.open(path) as image:
            return _comment(image)
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error


def _comment(image: Image.Image) -> str:
    match image.format:
        case "WEBP":
            return str(image.getexif().get(_IMAGE_DESCRIPTION, ""))
        case "GIF":
            comment: bytes = image.info.get("comment", b"")
            return comment.decode(errors="replace")
        case _:
            return str(image.info.get("Comment", ""))


def _animation(kind: str, images: list[Image.Image], show_ms: list[int], **options: object) -> bytes:
    memory = io.BytesIO()
    images[0].save(memory, kind, save_all=True, append_images=images[1:], duration=show_ms, loop=0, **options)
    return memory.getvalue()


def _paletted(frames: npt.NDArray[np.uint8]) -> list[Image.Image]:
    colours = _colours(frames)
    if len(colours) <= _COLOURS:
        return [_indexed(frame, colours) for frame in frames]
    pixels = frames.reshape(-1, 3)
    sample = pixels[:: -(-len(pixels) // _SAMPLES)]
    palette = Image.fromarray(sample[np.newaxis]).quantize(_COLOURS, method=Image.Quantize.MEDIANCUT)
    return [Image.fromarray(frame).quantize(palette=palette) for frame in frames]


def _indexed(frame: npt.NDArray[np.uint8], colours: npt.NDArray[np.int64]) -> Image.Image:
    image = Image.fromarray(np.searchsorted(colours, _packed(frame)).astype(np.uint8))
    rgb = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1)
    image.putpalette(rgb.astype(np.uint8).tobytes())
    return image


def _colours(frames: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The colours that occur, packed and in order; a table of all is faster than sorting the pixels."""
    seen = np.zeros(1 << 24, dtype=np.bool_)
    for frame in frames:
        seen[_packed(frame)] = True
    return np.flatnonzero(seen)


def _packed(frame: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    packed: npt.NDArray[np.int64] = frame.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    return packed
