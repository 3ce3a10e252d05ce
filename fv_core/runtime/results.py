"""What a finished run yields, gathered from its slots into the clip that its caller gets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fv_core.extend.chain import Enabled
from fv_core.media import Clip, audio_from_waveform, frames_from_video
from fv_core.runtime import provenance
from fv_core.runtime.job import Job
from fv_core.runtime.run import RequestRun


def finished_clip(job: Job, extensions: Sequence[Enabled]) -> Clip:
    """The artifacts of a job that is done and did not fail.

    Raises:
        RunError: FV501 or FV502, an artifact is not what its kind says.
    """
    run = job.run
    found = {name: run.slots[slot] for name, slot in run.artifacts.items()}
    return Clip(
        frames=frames_from_video(run.tensor(run.artifacts["video"])) if "video" in found else NO_FRAMES,
        fps=run.request.fps,
        request=run.request,
        used=provenance.used(job, extensions),
        audio=audio_from_waveform(run.tensor(run.artifacts["audio"]), run.program.sample_rate)
        if "audio" in found
        else None,
        text=_text(run),
        action=run.tensor(run.artifacts["action"]).float().cpu().numpy() if "action" in found else None,
        tensors={name: _kept(run, name) for name in run.request.keep},
    )


NO_FRAMES = np.zeros((0, 0, 0, 3), np.uint8)
"""Of a run that makes no picture."""


def _text(run: RequestRun) -> str | None:
    slot = run.artifacts.get("text")
    if slot is None:
        return None
    text = run.slots[slot]
    assert isinstance(text, str), f"artifact text is a {type(text).__name__}"
    return text


def _kept(run: RequestRun, slot: str) -> torch.Tensor:
    return run.tensor(slot).clone()  # values may be shared
