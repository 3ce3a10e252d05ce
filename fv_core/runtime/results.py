"""What a finished run yields, gathered from its slots into the clip that its caller gets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from fv_core.cache import CacheRef
from fv_core.errors import RunError
from fv_core.extend.chain import Enabled
from fv_core.media import Clip, audio_from_waveform, frames_from_video
from fv_core.request import EVERYTHING
from fv_core.runtime.job import Job
from fv_core.runtime.records import provenance
from fv_core.runtime.run import RequestRun


def finished_clip(job: Job, extensions: Sequence[Enabled]) -> Clip:
    """The artifacts of a job that is done and did not fail.

    Raises:
        RunError: FV501 or FV502, an artifact is not what its kind says; FV511, the frames are not as many or as large
            as was asked.
    """
    run = job.run
    found = {name: run.slots[slot] for name, slot in run.artifacts.items()}
    return Clip(
        frames=_frames(run) if "video" in found else NO_FRAMES,
        fps=run.request.fps,
        request=run.request,
        used=provenance.used(job, extensions),
        audio=audio_from_waveform(run.tensor(run.artifacts["audio"]), run.program.sample_rate)
        if "audio" in found
        else None,
        text=_text(run),
        action=run.tensor(run.artifacts["action"]).float().cpu().numpy() if "action" in found else None,
        tensors=_kept(run),
    )


NO_FRAMES = np.zeros((0, 0, 0, 3), np.uint8)
"""Of a run that makes no picture."""


def _frames(run: RequestRun) -> npt.NDArray[np.uint8]:
    frames, asked = frames_from_video(run.tensor(run.artifacts["video"])), run.request
    count, height, width, _ = frames.shape
    if (count, width, height) != (asked.frames, asked.size.width, asked.size.height):
        raise RunError(
            "FV511",
            name=f"clip of {asked.model}",
            value=f"{count} frames of {width}x{height}",
            rule="is not what was asked for",
            legal=f"{asked.frames} frames of {asked.size}",
            remedy="Report it to the author of the model's plugin: its latent grid or its decoder is wrong.",
        )
    return frames


def slot_tensor(run: RequestRun, slot: str) -> torch.Tensor:
    """What a slot holds, as a tensor of its own: a text as its UTF-8 bytes, a number as fp64.

    Raises:
        RunError: FV502, it holds a cache.
    """
    value = run.slots[slot]
    if isinstance(value, CacheRef):
        raise RunError(
            "FV502",
            name=f"slot {slot}",
            rule="holds a cache, which cannot be returned",
            remedy="Leave it out of output.keep.",
        )
    if isinstance(value, str):
        return torch.tensor(list(value.encode()), dtype=torch.uint8)
    if isinstance(value, (bool, int, float)):
        return torch.tensor(value, dtype=torch.float64)
    return run.tensor(slot).clone()  # values may be shared


def _kept(run: RequestRun) -> dict[str, torch.Tensor]:
    keep = run.request.keep
    if EVERYTHING in keep:
        written = {slot for node in run.nodes for slot in node.writes.values()}
        keep = tuple(
            slot for slot in sorted(written & run.slots.keys()) if not isinstance(run.slots[slot], CacheRef)
        )
    return {slot: slot_tensor(run, slot) for slot in keep}


def _text(run: RequestRun) -> str | None:
    slot = run.artifacts.get("text")
    if slot is None:
        return None
    text = run.slots[slot]
    assert isinstance(text, str), f"artifact text is a {type(text).__name__}"
    return text
