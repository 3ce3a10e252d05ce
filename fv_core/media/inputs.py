"""Reads the images, videos, sounds and actions that a request brings: told by their bytes, measured before decoded."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import av
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from fv_core.errors import RequestError
from fv_core.request import Modality, ModalPart

Content = npt.NDArray[Any]

MAX_BYTES: Final[Mapping[Modality, int]] = {
    Modality.IMAGE: 64 * 2**20,
    Modality.VIDEO: 1024 * 2**20,
    Modality.AUDIO: 256 * 2**20,
    Modality.ACTION: 64 * 2**20,
}
"""Largest file of each kind."""

MAX_DECODED: Final = 2 * 2**30
"""Most bytes that an input may come to once it is decoded: a small file can hold a very large picture."""

_MODES: Final = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
"""Pixels that become 8-bit RGB without losing what they show."""

_CHANNELS: Final = 8
_IMAGES: Final = ("PNG", "JPEG", "WEBP")
_DEMUXERS: Final = ("mov", "matroska", "wav", "mp3", "flac", "ogg")
_MEDIA: Final = {
    Modality.VIDEO: ("mov", "matroska"),
    Modality.AUDIO: ("wav", "mp3", "flac", "ogg", "mov", "matroska"),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedInput:
    """An input's content, and what its sender should know of how it was taken.

    Image: uint8 [H, W, 3]. Video: uint8 [F, H, W, 3]. Audio: fp32 [channels, samples]. Action: fp32 [T, D].
    """

    content: Content
    notes: tuple[str, ...] = ()


def read_part(part: ModalPart) -> bytes:
    """The bytes of an input.

    Raises:
        RequestError: FV320 neither or both of file and bytes, or the file cannot be read; FV321 too large.
    """
    if bool(part.path) == bool(part.data):
        raise unreadable(part, "needs either a file or bytes")
    limit = MAX_BYTES[part.modality]
    try:
        data = _whole(Path(part.path), limit) if part.path else part.data
    except (OSError, ValueError) as error:
        raise RequestError(
            "FV320",
            name=f"{part.modality} input",
            value=part.path,
            rule=f"cannot be read: {error.strerror if isinstance(error, OSError) else error}",
            remedy="Give the path of a file that exists and is readable.",
        ) from error
    if len(data) > limit:
        raise _too_large(part, f"more than {limit} bytes", f"at most {limit} bytes")
    return data


def decode_part(part: ModalPart, data: bytes) -> DecodedInput:
    """The content of an input.

    Raises:
        RequestError: FV320 not of a kind that is read, or damaged; FV321 too large once decoded.
    """
    decode: Mapping[Modality, Callable[[ModalPart, bytes], DecodedInput]] = {
        Modality.IMAGE: _image,
        Modality.VIDEO: _video,
        Modality.AUDIO: _audio,
        Modality.ACTION: _action,
    }
    try:
        return decode[part.modality](part, data)
    except RequestError:
        raise
    except (MemoryError, Image.DecompressionBombError) as error:
        told = "more than is ever decoded"
        raise _too_large(part, told, f"at most {MAX_DECODED} bytes once decoded") from error
    except Exception as error:  # damaged bytes have made the decoders raise nearly everything
        raise unreadable(part, f"cannot be decoded: {type(error).__name__}: {error}") from error


def _whole(path: Path, limit: int) -> bytes:
    """The file's bytes, or one more than `limit` of them: a device has no size and no end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is no regular file")
    with path.open("rb") as file:
        return file.read(limit + 1)


def _image(part: ModalPart, data: bytes) -> DecodedInput:
    try:
        image = Image.open(io.BytesIO(data), formats=_IMAGES)
    except UnidentifiedImageError as error:
        raise unreadable(part, "is no image that is read") from error
    _check_decoded(part, image.width * image.height * 3, f"{image.width}x{image.height}")
    if image.mode not in _MODES:
        raise unreadable(part, f"has pixels of the kind {image.mode}, of more than 8 bits each")
    notes = []
    if (count := getattr(image, "n_frames", 1)) > 1:
        notes.append(f"of the image's {count} frames the first is used")
    if "A" in image.getbands() or "transparency" in image.info:
        notes.append("the image's transparency is not used")
    upright = ImageOps.exif_transpose(image).convert("RGB")
    return DecodedInput(content=np.asarray(upright).copy(), notes=tuple(notes))


def _video(part: ModalPart, data: bytes) -> DecodedInput:
    with open_media(part, io.BytesIO(data)) as container:
        if not container.streams.video:
            raise unreadable(part, "holds no video")
        stream = container.streams.video[0]
        frame_bytes = stream.codec_context.width * stream.codec_context.height * 3
        frames: list[Content] = []
        for frame in container.decode(stream):
            _check_decoded(part, frame_bytes * (len(frames) + 1), f"more than {len(frames)} frames")
            frames.append(frame.to_ndarray(format="rgb24"))
        told = stream.frames
    if not frames:
        raise unreadable(part, "holds no frame")
    if len(frames) < told:
        raise unreadable(part, f"is cut short: {len(frames)} of its {told} frames are there")
    return DecodedInput(content=np.stack(frames))


def _audio(part: ModalPart, data: bytes) -> DecodedInput:
    with open_media(part, io.BytesIO(data)) as container:
        if not container.streams.audio:
            raise unreadable(part, "holds no sound")
        if container.streams.audio[0].channels not in range(1, _CHANNELS + 1):
            raise unreadable(part, f"does not have 1 to {_CHANNELS} channels")
        resampler = av.AudioResampler(format="fltp")
        blocks: list[Content] = []
        for frame in container.decode(container.streams.audio[0]):
            blocks += [part.to_ndarray() for part in resampler.resample(frame)]
            _check_decoded(part, sum(block.nbytes for block in blocks), f"{len(blocks)} blocks")
    if not blocks:
        raise unreadable(part, "holds no sample")
    return DecodedInput(content=np.concatenate(blocks, axis=1).astype(np.float32))


def _action(part: ModalPart, data: bytes) -> DecodedInput:
    if not data.startswith(b"\x93NUMPY"):
        raise unreadable(part, "is no .npy file")
    actions = np.load(io.BytesIO(data), allow_pickle=False)
    if not isinstance(actions, np.ndarray) or actions.ndim != 2 or 0 in actions.shape:
        raise unreadable(part, "holds no array [T, D]")
    if actions.dtype.kind != "f":
        raise unreadable(part, "holds numbers that are no floats")
    with np.errstate(over="ignore"):
        rows = actions.astype(np.float32)
    if not np.isfinite(rows).all():
        raise unreadable(part, "holds numbers that are not finite in 32 bits")
    return DecodedInput(content=rows)


def open_media(part: ModalPart, file: BinaryIO) -> Any:
    """The container of a video or sound, to be closed by who asked.

    Raises:
        RequestError: FV320, it is of no format that is read.
    """
    # Other demuxers may open files that the bytes name.
    try:
        container = av.open(file, options={"format_whitelist": ",".join(_DEMUXERS)})
    except av.FFmpegError as error:
        raise unreadable(part, "is of no format that is read, or damaged") from error
    if not any(name in container.format.name.split(",") for name in _MEDIA[part.modality]):
        name = container.format.name
        container.close()
        raise unreadable(part, f"is of the format {name}")
    return container


def _check_decoded(part: ModalPart, size: int, told: str) -> None:
    if size > MAX_DECODED:
        raise _too_large(part, told, f"at most {MAX_DECODED} bytes once decoded")


def unreadable(part: ModalPart, rule: str) -> RequestError:
    """FV320."""
    legal = {
        Modality.IMAGE: "PNG, JPEG or WebP",
        Modality.VIDEO: "MP4, MOV, WebM or MKV",
        Modality.AUDIO: "WAV, MP3, FLAC, OGG or MP4",
        Modality.ACTION: ".npy of finite floats [T, D]",
    }
    return RequestError(
        "FV320",
        name=f"{part.modality} input",
        value=part.path or f"{len(part.data)} bytes",
        rule=rule,
        legal=legal[part.modality],
        remedy="Give a whole file of one of these kinds.",
    )


def _too_large(part: ModalPart, value: str, legal: str) -> RequestError:
    return RequestError(
        "FV321",
        name=f"{part.modality} input {part.path}".rstrip(),
        value=value,
        rule="is too large",
        legal=legal,
        remedy="Give a smaller or shorter one.",
    )
