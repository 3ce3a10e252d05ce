"""Finetuning by flow matching: the velocity of a noised latent under its caption (Lipman et al. 2023).

`mean[w(s) (v(x_s, s, c) - (eps - x0))^2]` with a noise level of its own for every sample. Trains any of the model's
components that a gradient reaches, its text encoder too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from fv_core.loop.keyed import DrawKey, keyed_normal, keyed_uniform
from fv_core.training import maths
from fv_core.training.contract import Batch, Latent, Loss, Mean, MethodContext, Sample

STUDENT = "student"
_BINS = 4


class Density(StrEnum):
    """How noise levels are distributed: shifted uniform, or with a normal logit."""

    UNIFORM = "uniform"
    LOGIT_NORMAL = "logit_normal"


class Weighting(StrEnum):
    """The weight of a noise level: 1, or cosmap."""

    NONE = "none"
    COSMAP = "cosmap"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneConfig:
    """Table [method] of `finetune`.

    Args:
        components: ids of those that are trained; () is what denoises.
        density: of the noise levels. shift: of a uniform one; None is the recipe's, which the model is served with.
        mean, std: of the logit of a logit-normal one.
        low, high: the noise levels that are trained, by renormalising the density.
        stratified: whether the samples of a step have one noise level in each of as many equally likely parts.
        weighting: of a noise level.
    """

    components: tuple[str, ...] = ()
    density: Density = Density.UNIFORM
    shift: float | None = None
    mean: float = 0.0
    std: float = 1.0
    low: float = 0.0
    high: float = 1.0
    stratified: bool = True
    weighting: Weighting = Weighting.NONE

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1:
            raise ValueError(f"low is {self.low} and high is {self.high}, which are not 0 <= low < high <= 1")
        if self.std <= 0 or (self.shift is not None and self.shift <= 0):
            raise ValueError(f"std is {self.std} and shift is {self.shift}, which are not above 0")


class Finetune:
    """One role, `student`."""

    Config: ClassVar[type] = FinetuneConfig
    content: ClassVar[type[Latent]] = Latent

    def __init__(self, config: FinetuneConfig, context: MethodContext) -> None:
        self._config = config
        self._model = context.model
        self._seed = context.seed
        self._total = context.total
        self._components = config.components or context.model.denoisers
        self._shift = context.model.card.recipe.shift if config.shift is None else config.shift
        self._trains_text = context.model.text_encoder in self._components
        self._empty: dict[str, Tensor] = {}

    @property
    def takes_embeds(self) -> bool:
        return not self._trains_text

    def roles(self) -> Mapping[str, Mapping[str, nn.Module]]:
        return {STUDENT: {name: self._model.module(name) for name in self._components}}

    def updates(self, step: int) -> Sequence[str]:
        return (STUDENT,)

    def loss(self, role: str, batch: Batch) -> Loss:
        latents = [cast(Latent, sample.content) for sample in batch.samples]
        device = self._model.device
        x0 = torch.stack([self._drawn(latent, batch, i) for i, latent in enumerate(latents)]).to(device)
        eps = torch.stack([keyed_normal(key, tuple(x0.shape[1:])) for key in self._keys("noise", batch)])
        eps, levels = eps.to(device), self.sigmas(batch)
        s = levels.to(device)
        velocity = self._model.velocity(
            maths.noised(x0, eps, s), levels.tolist(), self._conds(batch.samples), grad=True
        )
        losses = maths.flow_losses(
            velocity.to(x0.dtype),
            maths.velocity_target(x0, eps),
            self._weight(s),
            [one.valid for one in latents],
        )
        return Loss(total=losses.sum(), metrics=_by_level(levels, losses.detach()))

    def sigmas(self, batch: Batch) -> Tensor:
        """The noise level of each sample, [B] in (0, 1)."""
        config = self._config
        u = torch.tensor([keyed_uniform(key) for key in self._keys("sigma", batch)], dtype=torch.float64)
        if config.stratified:
            u = maths.stratified(u, batch.numbers, self._total)
        if config.density is Density.LOGIT_NORMAL:
            s = maths.logit_normal(u, mean=config.mean, std=config.std, low=config.low, high=config.high)
        else:
            s = maths.shifted_uniform(u, shift=self._shift, low=config.low, high=config.high)
        return s.float()

    def _drawn(self, latent: Latent, batch: Batch, place: int) -> Tensor:
        if latent.std is None:
            return latent.mean
        key = DrawKey(seed=self._seed, purpose="posterior", step=batch.step, sample=batch.numbers[place])
        return latent.mean + latent.std * keyed_normal(key, tuple(latent.mean.shape))

    def _conds(self, samples: Sequence[Sample]) -> list[Tensor]:
        """The embeddings of the captions; a caption that several samples have is encoded once."""
        known = {one.caption: one.embeds for one in samples if one.embeds is not None} | self._empty
        new = list(dict.fromkeys(one.caption for one in samples if one.caption not in known))
        encoded = dict(zip(new, self._model.encode(new, grad=self._trains_text), strict=True)) if new else {}
        empty = self._model.card.defaults.negative_prompt
        if not self._trains_text and empty in encoded:
            self._empty[empty] = encoded[empty]
        return [{**known, **encoded}[one.caption] for one in samples]

    def _weight(self, s: Tensor) -> Tensor | None:
        return maths.cosmap_weight(s) if self._config.weighting is Weighting.COSMAP else None

    def _keys(self, purpose: str, batch: Batch) -> list[DrawKey]:
        return [
            DrawKey(seed=self._seed, purpose=purpose, step=batch.step, sample=number)
            for number in batch.numbers
        ]


def _by_level(s: Tensor, losses: Tensor) -> dict[str, Mean]:
    """The loss by noise level: what a single number hides."""
    bins: dict[str, Mean] = {}
    for level, loss in zip(s.tolist(), losses.tolist(), strict=True):
        part = min(int(level * _BINS), _BINS - 1)
        name = f"loss_s{part / _BINS:g}-{(part + 1) / _BINS:g}"
        before = bins.get(name, Mean(total=0.0, count=0))
        bins[name] = Mean(total=before.total + loss, count=before.count + 1)
    return bins
