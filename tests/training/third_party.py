"""A training method of somebody else's, as a plugin's module has it: it learns the data, not the velocity.

The mean absolute error of the data prediction `x_s - s v`, noise levels uniform in [low, 1). Of fv it uses the contract
of methods, the keyed draws and the maths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import nn

from fv_core.loop.keyed import DrawKey, keyed_normal, keyed_uniform
from fv_core.training import maths
from fv_core.training.contract import Batch, Latent, Loss, Mean, MethodContext


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsoluteConfig:
    """Table [method]. `low`: the least noise level, in [0, 1)."""

    low: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.low < 1:
            raise ValueError(f"low is {self.low}, which is not in [0, 1)")


class Absolute:
    """One role, `student`: what denoises."""

    Config: ClassVar[type] = AbsoluteConfig
    content: ClassVar[type[Latent]] = Latent
    takes_embeds = True

    def __init__(self, config: AbsoluteConfig, context: MethodContext) -> None:
        self._low, self._model, self._seed = config.low, context.model, context.seed

    def roles(self) -> Mapping[str, Mapping[str, nn.Module]]:
        return {"student": {name: self._model.module(name) for name in self._model.denoisers}}

    def updates(self, step: int) -> Sequence[str]:
        return ("student",)

    def loss(self, role: str, batch: Batch) -> Loss:
        x0 = torch.stack([cast(Latent, sample.content).mean for sample in batch.samples])
        noise = [keyed_normal(self._key("noise", batch, n), tuple(x0.shape[1:])) for n in batch.numbers]
        levels = [keyed_uniform(self._key("sigma", batch, n)) for n in batch.numbers]
        s = torch.tensor([self._low + (1 - self._low) * one for one in levels])
        noised = maths.noised(x0, torch.stack(noise), s)
        captions = [sample.caption for sample in batch.samples]
        conds = [
            self._model.encode([caption], grad=False)[0] if sample.embeds is None else sample.embeds
            for caption, sample in zip(captions, batch.samples, strict=True)
        ]
        velocity = self._model.velocity(noised, s.tolist(), conds, grad=True)
        error = (noised - s.view(-1, 1, 1, 1, 1) * velocity - x0).abs().flatten(1).mean(1)
        return Loss(total=error.sum(), metrics={"level": Mean(total=float(s.sum()), count=len(levels))})

    def _key(self, what: str, batch: Batch, number: int) -> DrawKey:
        return DrawKey(seed=self._seed, purpose=what, step=batch.step, sample=number)
