"""The result of a run: frames, how fast they play, what is heard and said, and what made them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fv_core.errors import RunError
from fv_core.media.audio import Audio
from fv_core.media.output import save_automatic, save_clip
from fv_core.request import ResolvedRequest, Used

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clip:
    """What a run yielded and the facts about it.

    Args:
        frames: uint8 [F, H, W, 3], RGB; an image is one frame, a run that makes no picture has none.
        fps: frames per second, as the run used it.
        request: the settled request, prompt included; it reaches a file only through a sidecar.
        used: what the run really used; its facts (never the prompt) go into container metadata.
        audio: what is heard; None for a silent run.
        text: what the model wrote; None for a run that writes nothing.
        action: fp32 [T, D], one row per step of time; None for a run that plans none.
        tensors: the program slots that `request.keep` names, as the program left them.

    Raises:
        RunError: `frames` is not uint8 [F, H, W, 3] (FV502).
    """

    frames: npt.NDArray[np.uint8]
    fps: float
    request: ResolvedRequest
    used: Used
    audio: Audio | None = None
    text: str | None = None
    action: npt.NDArray[np.float32] | None = None
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frames = self.frames
        empty = 0 in frames.shape and len(frames) > 0
        if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or empty:
            raise _not_frames(frames.dtype, frames.shape, "uint8 [F, H, W, 3]")

    @property
    def artifacts(self) -> tuple[str, ...]:
        """What the run yielded, by name: some of video, audio, text, action."""
        found = {
            "video": len(self.frames) > 0,
            "audio": self.audio is not None,
            "text": self.text is not None,
            "action": self.action is not None,
        }
        return tuple(name for name, there in found.items() if there)

    def save(self, path: str | Path, *, force: bool = False, scale: int = 1) -> Path:
        """Writes the clip whole or not at all; the suffix picks the format.

        `.mp4` (H.264, and AAC as long as the frames for what is heard), `.webm` (VP9), `.gif`, `.webp` (lossless),
        `.png`, `.npy` (the uint8 array). A `.png` path is the file for a clip of one frame; a longer clip becomes the
        numbered files `<stem>-0001.png`, `<stem>-0002.png`, ..., and all of them appear or none. `.wav` is the sound
        alone (16-bit PCM), `.txt` the text; of a run without frames `.npy` is the actions. A file holds what its format
        can: the rest is in the clip.

        Args:
            force: replace what is there; otherwise an existing file is refused.
            scale: whole factor of at least 1 by which both sides are enlarged, nearest neighbour.

        Returns:
            The file written; of numbered files the first.

        Raises:
            RequestError: the path, the scale or the size does not suit the format (FV315), or the rate (FV307).
            ResourceError: the disk is full (FV403).
        """
        return save_clip(self, Path(path), force=force, scale=scale)

    def save_automatic(self, folder: str | Path = ".", *, suffix: str = ".mp4", scale: int = 1) -> Path:
        """Writes the clip under the first free `<words>-<seed>[-N]<suffix>` of `folder`, never over a file.

        The name is taken at the moment of writing, so two processes that finish together get two names.

        Raises: as `save`.
        """
        return save_automatic(self, Path(folder), suffix=suffix, scale=scale)


def frames_from_video(video: torch.Tensor) -> npt.NDArray[np.uint8]:
    """A float video [F, H, W, 3] in [0, 1], on any device, as uint8 frames: round(x * 255).

    Raises:
        RunError: a value is not finite (FV501), lies outside [0, 1], or the tensor is no such video (FV502).
    """
    if not video.is_floating_point() or video.ndim != 4 or video.shape[3] != 3 or 0 in video.shape:
        raise _not_frames(
            str(video.dtype).removeprefix("torch."), tuple(video.shape), "floating point [F, H, W, 3]"
        )
    low, high = (float(value) for value in video.detach().aminmax())  # NaN anywhere makes both of them NaN
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RunError(
            "FV501",
            name="video",
            rule="must be finite but holds NaN or infinity",
            remedy="Decode in a wider precision; if it persists the weights or the loop are at fault.",
        )
    if low < 0.0 or high > 1.0:
        raise RunError(
            "FV502",
            name="video",
            value=(low, high),
            rule="must lie in [0, 1]",
            remedy="The component that decodes must map its output to [0, 1] before it returns it.",
        )
    frames = np.empty(tuple(video.shape), np.uint8)
    for out, frame in zip(frames, video.detach(), strict=True):  # one by one: a clip's copy in fp32 is large
        out[:] = frame.float().mul(255.0).round_().byte().cpu().numpy()
    return frames


def _not_frames(dtype: object, shape: tuple[int, ...], legal: str) -> RunError:
    return RunError(
        "FV502",
        name="frames",
        value=f"{dtype} {list(shape)}",
        rule="are not a video",
        legal=f"{legal}, no side empty",
        remedy="Return them in this type, in the order time, height, width, channel.",
    )
