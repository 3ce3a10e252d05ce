"""The formats fv writes, by suffix, with the limits that a clip must meet before anything is encoded."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from fv_core.errors import RequestError
from fv_core.media.audio import Audio
from fv_core.media.rate import exact_rate
from fv_core.request import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One output format, and the artifacts that it can hold: `primary` it cannot do without.

    `max_fps` is where its clock (or, for GIF, every player) gives up. `max_s` is the longest that one frame can
    show, a bound for the whole clip where equal neighbours are stored as one. Untimed formats have neither.
    """

    suffix: str
    primary: str = "video"
    holds: tuple[str, ...] = ("video",)
    max_side: int = 2**31 - 1
    timed: bool = True
    even_sides: bool = False
    max_fps: float = math.inf
    max_s: float = math.inf


FORMATS: Final = {
    form.suffix: form
    for form in (
        Format(suffix=".mp4", holds=("video", "audio"), max_side=16_384, even_sides=True),
        Format(suffix=".webm", max_side=16_384, max_fps=1000.0),
        Format(suffix=".gif", max_side=65_535, max_fps=50.0, max_s=655.0),
        Format(suffix=".webp", max_side=16_383, max_fps=1000.0, max_s=16_777.0),
        Format(suffix=".png", timed=False),
        Format(suffix=".npy", timed=False),
        Format(suffix=".wav", primary="audio", holds=("audio",), timed=False),
        Format(suffix=".txt", primary="text", holds=("text",), timed=False),
    )
}


def format_of(path: Path) -> Format:
    """The format that the suffix names, in any case.

    Raises:
        RequestError: the suffix names none (FV315).
    """
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise _unsuited(
            "output",
            str(path),
            "has a suffix that names no format",
            ", ".join(FORMATS),
            "Choose one of these.",
        ) from None


def check_size(form: Format, size: Size) -> None:
    """Raises:
    RequestError: `form` cannot hold frames of this size (FV315).
    """
    if form.even_sides and (size.width % 2 or size.height % 2):
        raise _unsuited(
            "size", str(size), f"has an odd side, which {form.suffix} (H.264, yuv420p) cannot hold",
            "even width and height", "Save as .webm or .png, or enlarge with an even scale.",
        )  # fmt: skip
    if max(size.width, size.height) > form.max_side:
        raise _unsuited(
            "size", str(size), f"is too large for {form.suffix}",
            f"sides of at most {form.max_side} pixels", "Use a smaller scale, or save as .png or .npy.",
        )  # fmt: skip


def check_artifacts(form: Format, yielded: Collection[str]) -> None:
    """Raises:
    RequestError: the run yields nothing that `form` could hold (FV315).
    """
    if form.primary in yielded or (form.suffix == ".npy" and "action" in yielded):
        return
    raise _unsuited(
        "output", form.suffix, f"holds {form.primary}, and the run yields {', '.join(sorted(yielded))}",
        ", ".join(suffix for suffix, other in FORMATS.items() if other.primary in yielded)
        or ("" if "action" not in yielded else ".npy"),
        "Choose one of these suffixes.",
    )  # fmt: skip


def check_sound(form: Format, sample_rate: int) -> None:
    """Raises:
    RequestError: `form` cannot hold sound at this rate (FV315).
    """
    from fv_core.media.video import AAC_RATES  # PyAV loads only where there is sound

    if form.suffix == ".mp4" and sample_rate not in AAC_RATES:
        raise _unsuited(
            "sample rate", f"{sample_rate} Hz", "is none that AAC, the sound of .mp4, can code",
            ", ".join(map(str, AAC_RATES)), "Save as .wav.",
        )  # fmt: skip


def check_rate(form: Format, fps: float, frames: int) -> None:
    """Raises:
    RequestError: `form` cannot time `frames` frames at this rate (FV307).
    """
    if not form.timed:
        return
    rate = exact_rate(fps)
    if rate > form.max_fps or frames / rate > form.max_s:
        raise RequestError(
            "FV307",
            name="fps",
            value=fps,
            rule=f"cannot be kept by {form.suffix} for {frames} frames",
            legal=_rates(form),
            remedy="Save as .mp4, or choose another rate.",
        )


def encode(
    form: Format, frames: npt.NDArray[np.uint8], fps: float, comment: str, audio: Audio | None
) -> list[bytes]:
    """The bytes of a file of frames; for PNG one item per frame. Equal input gives equal bytes.

    The writers import PyAV and Pillow, so each is loaded here, when its format is asked for.
    """
    rate = exact_rate(fps) if form.timed else Fraction(1)
    if form.suffix in (".mp4", ".webm"):
        from fv_core.media.video import encode_mp4, encode_webm

        if form.suffix == ".mp4":
            return [encode_mp4(frames, rate, comment, audio)]
        return [encode_webm(frames, rate, comment)]
    from fv_core.media import images

    match form.suffix:
        case ".gif":
            return [images.encode_gif(frames, rate, comment)]
        case ".webp":
            return [images.encode_webp(frames, rate, comment)]
        case ".png":
            return [images.encode_png(frame, comment) for frame in frames]
        case _:
            return [images.encode_npy(frames)]


def _rates(form: Format) -> str:
    longest = "" if math.isinf(form.max_s) else f", at most {form.max_s:g} s in all"
    return f"at most {form.max_fps:g} frames per second{longest}"


def _unsuited(name: str, value: str, rule: str, legal: str, remedy: str) -> RequestError:
    return RequestError("FV315", name=name, value=value, rule=rule, legal=legal, remedy=remedy)
