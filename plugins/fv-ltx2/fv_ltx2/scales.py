"""Guidance of a request per modality, and what of it the reference cannot do."""

from __future__ import annotations

from typing import Final

from fv_core.errors import RequestError
from fv_core.request import Numerics, ResolvedRequest
from fv_ltx2.guidance import Scales

REQUEST_PARAMS: Final = (
    "audio_guidance", "stg", "audio_stg", "modality", "audio_modality", "rescale", "audio_rescale",
)  # fmt: skip
"""Parameters of a request that are read here; a card that leaves one out has that term off."""


def scales_of(request: ResolvedRequest) -> tuple[Scales, Scales]:
    """Guidance of video and of audio. Where guidance is 1 there is no negative prompt for either.

    Raises:
        RequestError: FV314, the reference cannot switch a term off for audio alone.
    """
    video = Scales(
        cfg=request.guidance,
        stg=_value(request, "stg", 0.0),
        modality=_value(request, "modality", 1.0),
        rescale=_value(request, "rescale", 0.0),
    )
    audio = Scales(
        cfg=_value(request, "audio_guidance", 1.0) if request.guidance > 1 else 1.0,
        stg=_value(request, "audio_stg", 0.0),
        modality=_value(request, "audio_modality", 1.0),
        rescale=_value(request, "audio_rescale", 0.0),
    )
    if request.numerics is Numerics.REFERENCE:
        _check_reference("audio_stg", audio.stg, video.stg)
        _check_reference("audio_rescale", audio.rescale, video.rescale)
    return video, audio


def _value(request: ResolvedRequest, name: str, off: float) -> float:
    return float(request.params.get(name, off))


def _check_reference(name: str, audio: float, video: float) -> None:
    if audio == 0 and video != 0:
        raise RequestError(
            "FV314",
            name=f"params.{name}",
            value=audio,
            rule="takes the video's value in the reference, which numerics=reference must equal",
            legal=f"above 0, or {name.removeprefix('audio_')} 0 as well",
            remedy="Choose numerics exact or fast.",
        )
