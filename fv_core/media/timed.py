"""Videos and images picture by picture, each with the time it is shown at: in memory is one picture at a time."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
import numpy.typing as npt

from fv_core.media.inputs import decode_part, open_media, read_part, unreadable
from fv_core.request import Modality, ModalPart

IMAGES: Final = (".jpeg", ".jpg", ".png", ".webp")
VIDEOS: Final = (".m4v", ".mkv", ".mov", ".mp4", ".webm")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimedPicture:
    """A picture of a video.

    Args:
        pixels: uint8 [H, W, 3], upright.
        time: when it is shown, in seconds; rises from picture to picture.
        tick: the file's unit of time in seconds: times are rounded to it.
        notes: what of the file is not shown by its pixels.
    """

    pixels: npt.NDArray[np.uint8]
    time: Fraction
    tick: Fraction
    notes: tuple[str, ...] = ()


def timed_pictures(path: Path) -> Generator[TimedPicture]:
    """The pictures of a file in the order in which they are shown; an image is one at time 0.

    Raises:
        RequestError: FV320 it cannot be read, is of no kind that is read, or is damaged as far as its decoder can tell;
            FV321 an image is too large.
    """
    if path.suffix.lower() in IMAGES:
        part = ModalPart(modality=Modality.IMAGE, path=str(path))
        image = decode_part(part, read_part(part))
        yield TimedPicture(pixels=image.content, time=Fraction(0), tick=Fraction(1), notes=image.notes)
        return
    part = ModalPart(modality=Modality.VIDEO, path=str(path))
    try:
        with path.open("rb") as file, open_media(part, file) as container:
            yield from _pictures(part, container)
    except OSError as error:  # FFmpeg's errors are of it too
        raise unreadable(part, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name, or sizes that no picture has
        raise unreadable(part, f"cannot be decoded: {error}") from error


def _pictures(part: ModalPart, container: Any) -> Iterator[TimedPicture]:
    if not container.streams.video:
        raise unreadable(part, "holds no video")
    stream = container.streams.video[0]
    count, last, longest = 0, None, Fraction(0)
    for frame in container.decode(stream):
        if frame.is_corrupt or frame.pts is None:
            raise unreadable(part, f"is damaged at frame {count}")
        time = frame.pts * frame.time_base
        if last is not None and time <= last:
            raise unreadable(part, f"shows frame {count} no later than the one before it")
        yield TimedPicture(pixels=_upright(frame), time=time, tick=frame.time_base)
        longest = max(longest, time - last) if last is not None else longest
        count, last = count + 1, time
    if last is None or count < stream.frames:
        raise unreadable(
            part, f"is cut short: {count} of its {stream.frames or 'unknown number of'} frames are there"
        )
    if (end := _told_end(stream)) is not None and end > last + 2 * longest:
        raise unreadable(part, f"is cut short: its pictures end at {float(last):.3f} s of {float(end):.3f} s")


def _told_end(stream: Any) -> Fraction | None:
    """When the stream ends, as WebM and MKV tell: they count no frames. None: it is not told."""
    found = re.fullmatch(r"(\d+):(\d+):(\d+\.?\d*)", stream.metadata.get("DURATION", ""))
    return None if found is None else int(found[1]) * 3600 + int(found[2]) * 60 + Fraction(found[3])


def _upright(frame: av.VideoFrame) -> npt.NDArray[np.uint8]:
    """The pixels as players show them: telephones film upright clips lying, and note by how much to turn them."""
    pixels = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    return np.ascontiguousarray(np.rot90(pixels, frame.rotation // 90)) if frame.rotation else pixels
