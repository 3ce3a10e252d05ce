"""Frames to mp4 (H.264, with AAC for sound) and webm (VP9) with PyAV.

Files are encoded in memory, so that every error of the disk is met by fv's own writer, and without times, random
ids or a thread count of the machine, so that equal clips give equal bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final

import av
import numpy as np
import numpy.typing as npt
from av.container import OutputContainer
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc, Interpolation

from fv_core.media.audio import Audio

_BT709_MATRIX: Final = 1  # AVCOL_SPC_BT709; PyAV's Colorspace counts as swscale does
_EXACT: Final = (
    Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INP | Interpolation.BITEXACT
)


AAC_RATES: Final = (
    7350, 8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000,
)  # fmt: skip
"""Samples per second that AAC can code."""

AAC_BLOCK: Final = 1024


def encode_mp4(
    frames: npt.NDArray[np.uint8], rate: Fraction, comment: str, audio: Audio | None = None
) -> bytes:
    """H.264 (x264, crf 17), yuv420p, BT.709 limited range, index before the data so that it plays while it loads.

    Args:
        frames: [F, H, W, 3] RGB; H and W even.
        rate: frames per second, kept exactly.
        comment: text of the comment tag.
        audio: becomes AAC at 192 kbit/s at its own rate, one of `AAC_RATES`. Models make sound in steps of their own,
            so it is cut or filled with silence to the length of the frames: players would else show a frozen picture,
            or end early.
    """
    # Without it x264's own kernels vary: about one encode in a hundred of the same frames came out different.
    options = {"crf": "17", "preset": "medium", "x264-params": "cpu-independent=1"}
    return _encode(frames, rate, comment, container="mp4", codec="libx264", options=options, audio=audio)


def encode_webm(frames: npt.NDArray[np.uint8], rate: Fraction, comment: str) -> bytes:
    """VP9 (crf 24), yuv420p, BT.709 limited range. Arguments as in `encode_mp4`.

    The rate is kept exactly; the container's clock ticks in milliseconds, so a single frame may show half a
    millisecond early or late.
    """
    options = {"crf": "24", "b": "0", "deadline": "good", "cpu-used": "2"}
    return _encode(frames, rate, comment, container="webm", codec="libvpx-vp9", options=options)


def read_comment(path: Path) -> str:
    """The comment tag of a video file, "" when it has none.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no video.
    """
    try:
        with path.open("rb") as file, av.open(file) as container:
            tags = {key.lower(): text for key, text in container.metadata.items()}
    except av.FFmpegError as error:
        raise ValueError(str(error)) from error
    return tags.get("comment", "")


def _encode(
    frames: npt.NDArray[np.uint8],
    rate: Fraction,
    comment: str,
    *,
    container: str,
    codec: str,
    options: Mapping[str, str],
    audio: Audio | None = None,
) -> bytes:
    sink = _Sink()
    # bitexact leaves out random ids and library versions; mp4 alone knows movflags
    settings = {"fflags": "+bitexact"} | ({"movflags": "+faststart"} if container == "mp4" else {})
    with av.open(sink, "w", format=container, container_options=settings, io_open=sink.reader) as output:
        output.metadata["comment"] = comment
        stream = output.add_stream(codec, rate=rate, options=dict(options))
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1  # more would make the bytes depend on their number
        stream.color_range, stream.colorspace = ColorRange.MPEG, _BT709_MATRIX
        stream.color_primaries, stream.color_trc = ColorPrimaries.BT709, ColorTrc.BT709
        sound = None if audio is None else _sound_stream(output, audio)
        for index, frame in enumerate(frames):
            output.mux(stream.encode(_picture(frame, index, rate)))
        output.mux(stream.encode(None))
        if audio is not None and sound is not None:
            for block in _blocks(_fitted(audio, len(frames) / rate)):
                output.mux(sound.encode(block))
            output.mux(sound.encode(None))
    return sink.content()


def _sound_stream(output: OutputContainer, audio: Audio) -> av.AudioStream:
    stream = output.add_stream("aac", rate=audio.rate, options={"flags": "+bitexact"})
    assert isinstance(stream, av.AudioStream)
    stream.bit_rate = 192_000
    stream.codec_context.layout = _layout(audio)
    return stream


def _fitted(audio: Audio, seconds: Fraction) -> Audio:
    wanted, have = round(seconds * audio.rate), audio.samples.shape[1]
    filled = np.pad(audio.samples, ((0, 0), (0, max(0, wanted - have))))
    return Audio(samples=filled[:, :wanted], rate=audio.rate)


def _blocks(audio: Audio) -> Iterator[av.AudioFrame]:
    """The samples in the blocks that AAC codes; the last one as long as it is."""
    for start in range(0, audio.samples.shape[1], AAC_BLOCK):
        block = np.ascontiguousarray(audio.samples[:, start : start + AAC_BLOCK])
        frame = av.AudioFrame.from_ndarray(block, format="fltp", layout=_layout(audio))
        frame.sample_rate, frame.pts, frame.time_base = audio.rate, start, Fraction(1, audio.rate)
        yield frame


def _layout(audio: Audio) -> str:
    return "mono" if audio.samples.shape[0] == 1 else "stereo"


def _picture(frame: npt.NDArray[np.uint8], index: int, rate: Fraction) -> av.VideoFrame:
    picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24").reformat(
        format="yuv420p",
        dst_colorspace=Colorspace.ITU709,
        src_color_range=ColorRange.JPEG,
        dst_color_range=ColorRange.MPEG,
        interpolation=_EXACT,
        threads=1,
    )
    picture.pts, picture.time_base = index, 1 / rate
    return picture


class _Sink:
    """A file in memory that outlives the muxer, which closes what it writes to if it can."""

    def __init__(self) -> None:
        self._memory = io.BytesIO()
        self.write, self.seek, self.tell = self._memory.write, self._memory.seek, self._memory.tell

    def content(self) -> bytes:
        return self._memory.getvalue()

    def reader(self, url: str, flags: int, options: Mapping[str, str]) -> _Reader:
        """Opened by the muxer when it moves the data behind the index."""
        return _Reader(self._memory)


class _Reader:
    """Reads a growing file in memory at a position of its own."""

    def __init__(self, memory: io.BytesIO) -> None:
        self._memory = memory
        self._position = 0

    def read(self, count: int) -> bytes:
        with self._memory.getbuffer() as view:
            data = bytes(view[self._position : self._position + count])
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._memory.getbuffer())}
        self._position = origin[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position
