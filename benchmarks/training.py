"""What the trainer adds to a training step: clips per second against a bare PyTorch loop on modules like its own.

Both train a Wan transformer and its text encoder together by flow matching, on latents in memory. The bare loop is what
one would write by hand: stacked batch, one forward of each module, loss, backward, clipping, fused AdamW, average.
"""

from __future__ import annotations

import statistics
import tempfile
from argparse import Namespace
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from report import Goal, alternate, arguments, ratio, report, settled
from torch import Tensor, nn

from fv_core import ModelCard, derive
from fv_core.training.batches import Batches
from fv_core.training.config import config_of
from fv_core.training.contract import Bucket, Latent, Sample
from fv_core.training.runlog import RunLog, StepTold
from fv_core.training.setup import Setup, set_up
from fv_core.training.trainer import Trainer
from fv_wan21.card import MICRO

BUCKET: Final = Bucket(frames=9, height=64, width=64)
DENOISER: Final = {
    **MICRO.components["transformer"].config,
    "num_attention_heads": 4,
    "attention_head_dim": 48,
    "ffn_dim": 576,
    "num_layers": 4,
}
LENGTH: Final = 16
RATE, CLIP, EMA = 1e-4, 1.0, 0.998


def card() -> ModelCard:
    """wan21/micro with a denoiser of the size that is trained on a CPU, and short prompts."""
    components = dict(MICRO.components)
    components["transformer"] = replace(components["transformer"], config=DENOISER, parameters=0)
    components["text"] = replace(
        components["text"], params={**components["text"].params, "max_length": LENGTH}
    )
    return derive(MICRO, components=components, checkpoint=None, weights="")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Latents that were encoded before."""

    latents: Tensor

    def __len__(self) -> int:
        return len(self.latents)

    def bucket(self, index: int) -> Bucket:
        return BUCKET

    def sample(self, index: int, epoch: int) -> Sample:
        return Sample(
            id=str(index),
            caption=f"a red circle moving {index % 8}",
            content=Latent(mean=self.latents[index]),
        )


class Ours:
    """The trainer: batches, draws, guard, figures and log included; without checkpoints."""

    def __init__(self, trainer: Trainer, batches: Batches, log: RunLog, steps: int) -> None:
        self._trainer = trainer
        self._batches = batches
        self._log = log
        self._steps = steps
        self.told: list[StepTold] = []

    def __call__(self) -> None:
        for _ in range(self._steps):
            for told in self._trainer.advance(self._batches):
                self._log.tell(told)
                self.told.append(told)


class Bare:
    """The loop by hand, on copies of the modules."""

    def __init__(self, setup: Setup, latents: Tensor, batch: int, steps: int) -> None:
        instance = setup.model.instance
        text: Any = instance.component("text")
        self._tokenizer = text.tokenizer
        self._modules = {name: deepcopy(setup.model.module(name)) for name in ("transformer", "text")}
        self._parameters = [one for module in self._modules.values() for one in module.parameters()]
        for parameter in self._parameters:
            parameter.requires_grad_(True)
        self._average = [one.detach().clone() for one in self._parameters]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=RATE, fused=True)
        self._latents, self._batch, self._steps, self._done = latents, batch, steps, 0

    def __call__(self) -> None:
        for _ in range(self._steps):
            self._step()

    def _step(self) -> None:
        places = [(self._done * self._batch + i) % len(self._latents) for i in range(self._batch)]
        self._done += 1
        x0 = self._latents[places]
        eps, s = torch.randn_like(x0), torch.rand(len(x0)).view(-1, 1, 1, 1, 1)
        tokens = self._tokenizer(
            [f"a red circle moving {place % 8}" for place in places],
            padding="max_length", max_length=LENGTH, truncation=True, return_tensors="pt",
        )  # fmt: skip
        text = self._modules["text"](tokens.input_ids, tokens.attention_mask).last_hidden_state
        text = text.masked_fill(tokens.attention_mask.unsqueeze(-1) == 0, 0.0)
        (velocity,) = self._modules["transformer"](
            hidden_states=(1 - s) * x0 + s * eps,
            timestep=(1000 * s.flatten()).long(),
            encoder_hidden_states=text,
            return_dict=False,
        )
        self._optimizer.zero_grad(set_to_none=True)
        loss = (velocity - (eps - x0)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, CLIP)
        self._optimizer.step()
        torch._foreach_lerp_(self._average, [one.detach() for one in self._parameters], 1 - EMA)


def measure(args: Namespace) -> None:
    batch, steps = (2, 1) if args.smoke else (16, 5)
    model = card()
    channels, frames, height, width = model.geometry(model.defaults.size, BUCKET.frames).latent
    generator = torch.Generator().manual_seed(0)
    latents = torch.randn(64, channels, frames, height, width, generator=generator)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        config = config_of(
            {
                "model": model.model_id,
                "weights": "seed",
                "method": {"name": "finetune", "components": ["transformer", "text"]},
                "data": {"name": "memory"},
                "save": {"dir": folder},
                "train": {"steps": 10**6, "batch": batch, "lr": RATE, "clip": CLIP, "ema": EMA},
            }
        )
        setup = set_up(config, card=model, source=Memory(latents=latents))
        stack.enter_context(setup.engine)
        bare = Bare(setup, latents, batch, steps)
        trainer = Trainer(config, setup)
        batches, log = (
            stack.enter_context(trainer.batches()),
            stack.enter_context(RunLog(Path(folder), done=0)),
        )
        ours = Ours(trainer, batches, log, steps)
        for contender in (ours, bare):
            contender()  # what only the first step does
        ours.told.clear()
        seconds = alternate({"fv": ours, "bare": bare}, args.rounds)
    whole = sum(told.figures["seconds"] for told in ours.told)
    waited = sum(told.figures["data_seconds"] for told in ours.told)
    figures = {
        "bare_clips_per_s": batch * steps / statistics.median(seconds["bare"]),
        "fv_over_bare": ratio(seconds["bare"], seconds["fv"]),
        "data_wait_share": waited / whole,
    }
    rows = [("", "clips/s")] + [
        (name, f"{batch * steps / statistics.median(own):.1f}") for name, own in seconds.items()
    ]
    goals = (
        Goal(figure="fv_over_bare", at_most=False, limit=0.97),
        Goal(figure="data_wait_share", at_most=True, limit=0.03),
    )
    report("training", rows, figures, goals, args)


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure(settled(arguments(__doc__, rounds=15)))
