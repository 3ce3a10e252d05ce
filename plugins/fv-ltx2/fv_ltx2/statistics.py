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
from fv_ltx2.rows import tensor


class LatentStatistics(nn.Module):
    """video_mean and video_std [C], audio_mean and audio_std [C * M]; `scaling` of the video latents."""

    def __init__(
        self, *, video_mean: Tensor, video_std: Tensor, audio_mean: Tensor, audio_std: Tensor, scaling: float
    ) -> None:
        super().__init__()
        self.register_buffer("video_mean", video_mean)
        self.register_buffer("video_std", video_std)
        self.register_buffer("audio_mean", audio_mean)
        self.register_buffer("audio_std", audio_std)
        self.scaling = scaling

    def of_video(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and spread as [C, 1, 1, 1], in the latent's dtype."""
        mean, std = self.get_buffer("video_mean"), self.get_buffer("video_std")
        return mean.view(-1, 1, 1, 1).to(latent), std.view(-1, 1, 1, 1).to(latent)

    def of_audio(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and spread as [C * M], in the latent's dtype."""
        return self.get_buffer("audio_mean").to(latent), self.get_buffer("audio_std").to(latent)


class Statistics:
    """Ops `denormalise` and `normalise`: rows and outputs latent [C, F, H, W] and audio_latent [L, C * M]."""

    def __init__(self, module: LatentStatistics) -> None:
        self.module = module

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = {"denormalise": self._denormalised, "normalise": self._normalised}[op]
        return [
            ComponentOutput(output=CallOutput(tensors=run(tensor(call, "latent"), tensor(call, "audio_latent"))))
            for call in calls
        ]

    def _denormalised(self, latent: Tensor, audio: Tensor) -> dict[str, Tensor]:
        mean, std = self.module.of_video(latent)
        audio_mean, audio_std = self.module.of_audio(audio)
        return {
            "latent": latent * std / self.module.scaling + mean,
            "audio_latent": audio * audio_std + audio_mean,
        }

    def _normalised(self, latent: Tensor, audio: Tensor) -> dict[str, Tensor]:
        mean, std = self.module.of_video(latent)
        audio_mean, audio_std = self.module.of_audio(audio)
        return {
            "latent": (latent - mean) * self.module.scaling / std,
            "audio_latent": (audio - audio_mean) / audio_std,
        }


def seeded(count: int) -> tuple[Tensor, Tensor]:
    """Mean and spread [count] for weights that are made and not trained: neither 0 and 1 nor alike."""
    steps = torch.arange(count, dtype=torch.float32)
    return 0.25 * torch.sin(steps), 1.0 + 0.25 * torch.cos(steps)
