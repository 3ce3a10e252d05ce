"""Sound: samples with their rate, and how they reach a file."""

from __future__ import annotations

import io
import math
import wave
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fv_core.errors import RunError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audio:
    """Finished sound: `samples` fp32 [channels, N] in [-1, 1], one or two channels, at `rate` samples per second.

    Raises:
        RunError: the samples are no such array (FV502).
    """

    samples: npt.NDArray[np.float32]
    rate: int

    def __post_init__(self) -> None:
        samples = self.samples
        if samples.dtype != np.float32 or samples.ndim != 2 or samples.shape[0] not in (1, 2):
            raise _not_sound(f"{samples.dtype} {list(samples.shape)}", "are not sound")

    @property
    def seconds(self) -> float:
        return float(self.samples.shape[1]) / self.rate


def audio_from_waveform(waveform: torch.Tensor, rate: int) -> Audio:
    """A waveform [channels, N] on any device as sound.

    Raises:
        RunError: a value is not finite (FV501) or lies outside [-1, 1], or the tensor is no waveform (FV502).
    """
    samples = waveform.detach().float().cpu().numpy()
    if samples.size:
        low, high = float(samples.min()), float(samples.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RunError(
                "FV501",
                name="audio",
                rule="must be finite but holds NaN or infinity",
                remedy="Decode in a wider precision; if it persists the weights or the loop are at fault.",
            )
        if low < -1.0 or high > 1.0:
            raise _not_sound((low, high), "must lie in [-1, 1]")
    return Audio(samples=samples, rate=rate)


def encode_wav(audio: Audio) -> bytes:
    """16-bit PCM."""
    memory = io.BytesIO()
    with wave.open(memory, "wb") as file:
        file.setnchannels(audio.samples.shape[0])
        file.setsampwidth(2)
        file.setframerate(audio.rate)
        file.writeframes(np.rint(audio.samples.T * 32767).astype("<i2").tobytes())
    return memory.getvalue()


def _not_sound(value: object, rule: str) -> RunError:
    return RunError(
        "FV502",
        name="audio",
        value=value,
        rule=rule,
        legal="fp32 [1 or 2 channels, samples] in [-1, 1]",
        remedy="The component that decodes must return a waveform of this form.",
    )
