"""Training of a video autoencoder: pixels through its posterior and back (Kingma and Welling 2014).

The prior is normal around 0, or around the latents that a *teacher* gives for the clip. A teacher in closed form, such
as a linear codec, has the decoder learn from usable latents at the first step, and fixes what latents mean beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast

import torch
from torch import Tensor, nn

from fv_core.loop.keyed import DrawKey, keyed_normal
from fv_core.plugins.reference import resolve_reference
from fv_core.training.contract import Batch, Loss, Mean, MethodContext, Pixels

AUTOENCODER = "autoencoder"
Teacher: TypeAlias = Callable[[Tensor], Tensor]
"""Latents [B, C, f, h, w], as the autoencoder has them, of clips [B, 3, F, height, width] in [-1, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VaeConfig:
    """Table [method] of `vae`.

    Args:
        component: id of the autoencoder, a module with diffusers' `encode` and `decode`.
        teacher: "module:attr" of a function that makes the prior's centre of a clip; "" is 0.
        spread: standard deviation of the prior, above 0.
        kl: weight of the divergence from the prior, as a mean over the latent's elements.
        bootstrap: steps, at the beginning of the run, in which the decoder sees draws of the prior; from 0 up.
        subject: weight of the pixels that differ from the clip's median colour; that of the others is 1.
    """

    component: str = "vae"
    teacher: str = ""
    spread: float = 1.0
    kl: float = 1e-6
    bootstrap: int = 0
    subject: float = 1.0

    def __post_init__(self) -> None:
        if self.spread <= 0 or self.kl < 0 or self.subject <= 0:
            raise ValueError(
                f"spread is {self.spread}, kl {self.kl} and subject {self.subject}: above 0, from 0 up and above 0"
            )
        if self.bootstrap < 0 or (self.bootstrap and not self.teacher):
            raise ValueError(f"bootstrap is {self.bootstrap}: from 0 up, and above it with a teacher alone")


class Vae:
    """One role, `autoencoder`."""

    Config: ClassVar[type] = VaeConfig
    content: ClassVar[type[Pixels]] = Pixels

    def __init__(self, config: VaeConfig, context: MethodContext) -> None:
        self._config = config
        self._seed = context.seed
        self._device = context.model.device
        self._module = context.model.module(config.component)
        self._vae = cast(Any, self._module)  # diffusers' autoencoders share these methods and no type
        self._teacher: Teacher | None = (
            resolve_reference(config.teacher, owner="method.teacher") if config.teacher else None
        )

    def roles(self) -> Mapping[str, Mapping[str, nn.Module]]:
        return {AUTOENCODER: {self._config.component: self._module}}

    def updates(self, step: int) -> Sequence[str]:
        return (AUTOENCODER,)

    def loss(self, role: str, batch: Batch) -> Loss:
        config = self._config
        clips = pixels([cast(Pixels, sample.content).frames for sample in batch.samples]).to(self._device)
        posterior = self._vae.encode(clips).latent_dist
        mean, logvar = posterior.mean, posterior.logvar
        with torch.no_grad():
            centre = torch.zeros_like(mean) if self._teacher is None else self._teacher(clips)
        eps = torch.stack(
            [keyed_normal(key, tuple(mean.shape[1:])) for key in self._keys("posterior", batch)]
        )
        if batch.step < config.bootstrap:
            latents = centre + config.spread * eps.to(mean)
        else:
            latents = mean + torch.exp(0.5 * logvar) * eps.to(mean)
        decoded = self._vae.decode(latents).sample
        squares = ((decoded - clips).square() * subject_weight(clips, config.subject)).flatten(1).mean(1)
        divergence = kl_divergence(mean, logvar, centre, config.spread).flatten(1).mean(1)
        count = len(batch.samples)
        plain = (decoded - clips).detach().square().mean()
        told = {
            "kl": Mean(total=float(divergence.detach().sum()), count=count),
            "psnr": Mean(total=count * float(10 * torch.log10(4 / plain)), count=count),
        }
        return Loss(total=(squares + config.kl * divergence).sum(), metrics=told)

    def _keys(self, purpose: str, batch: Batch) -> list[DrawKey]:
        return [
            DrawKey(seed=self._seed, purpose=purpose, step=batch.step, sample=number)
            for number in batch.numbers
        ]


def pixels(clips: Sequence[Tensor]) -> Tensor:
    """Clips uint8 [F, height, width, 3] as one tensor [B, 3, F, height, width] in [-1, 1]."""
    return torch.stack([clip.permute(3, 0, 1, 2) for clip in clips]).float() / 127.5 - 1


def subject_weight(clips: Tensor, weight: float) -> Tensor:
    """`weight` where a pixel is over a twentieth of the range off the clip's median colour, else 1; [B, 1, ...]."""
    background = clips.flatten(2).median(dim=2).values[:, :, None, None, None]
    return 1 + (weight - 1) * ((clips - background).abs().amax(1, keepdim=True) > 0.1)


def kl_divergence(mean: Tensor, logvar: Tensor, centre: Tensor, spread: float) -> Tensor:
    """From N(centre, spread^2) to N(mean, exp(logvar)), by element."""
    ratio = torch.exp(logvar) / spread**2
    return 0.5 * (ratio - 1 - logvar + 2 * math.log(spread) + ((mean - centre) / spread).square())
