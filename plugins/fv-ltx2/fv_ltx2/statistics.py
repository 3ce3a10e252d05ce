"""Means and spreads of both latents: between two stages latents leave the normalised space and come back to it.

They lie in the autoencoders' files, but are a component of their own: a run without sound needs the audio numbers for
equal bits, and not the audio autoencoder. Source: diffusers 0.42.1, `LTX2Pipeline._normalize_latents`,
`_denormalize_latents` and their audio counterparts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor, nn

from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import tensor

_PER_CHANNEL = (-1, 1, 1, 1)


class MeanAndSpread(nn.Module):
    """Of one latent, under the names of its autoencoder's file: latents_mean and latents_std [count]."""

    latents_mean: Tensor
    latents_std: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        mean, std = made(count)
        self.register_buffer("latents_mean", mean)
        self.register_buffer("latents_std", std)

    def like(self, latent: Tensor, shape: tuple[int, ...] = (-1,)) -> tuple[Tensor, Tensor]:
        """Both in the latent's dtype and on its device, in a shape that broadcasts over it."""
        return self.latents_mean.view(shape).to(latent), self.latents_std.view(shape).to(latent)


class LatentStatistics(nn.Module):
    """Of the video latent [C] and of the audio latent [C * M]; `scaling` of the video latent."""

    def __init__(self, *, video: MeanAndSpread, audio: MeanAndSpread, scaling: float) -> None:
        super().__init__()
        self.video = video
        self.audio = audio
        self.scaling = scaling


class Statistics:
    """Ops `denormalise` and `normalise`: rows and outputs latent [C, F, H, W] and audio_latent [L, C * M]."""

    def __init__(self, module: LatentStatistics) -> None:
        self.module = module

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = {"denormalise": self._denormalised, "normalise": self._normalised}[op]
        return [
            ComponentOutput(
                output=CallOutput(tensors=run(tensor(call, "latent"), tensor(call, "audio_latent")))
            )
            for call in calls
        ]

    def _denormalised(self, latent: Tensor, audio: Tensor) -> dict[str, Tensor]:
        mean, std = self.module.video.like(latent, _PER_CHANNEL)
        audio_mean, audio_std = self.module.audio.like(audio)
        return {
            "latent": latent * std / self.module.scaling + mean,
            "audio_latent": audio * audio_std + audio_mean,
        }

    def _normalised(self, latent: Tensor, audio: Tensor) -> dict[str, Tensor]:
        mean, std = self.module.video.like(latent, _PER_CHANNEL)
        audio_mean, audio_std = self.module.audio.like(audio)
        return {
            "latent": (latent - mean) * self.module.scaling / std,
            "audio_latent": (audio - audio_mean) / audio_std,
        }


def made(count: int) -> tuple[Tensor, Tensor]:
    """Mean and spread [count] for weights that are made and not trained: neither 0 and 1 nor alike."""
    steps = torch.arange(count, dtype=torch.float32)
    return 0.25 * torch.sin(steps), 1.0 + 0.25 * torch.cos(steps)
