"""A reference for the small model: the same modules called one after the other, and its mistaken twins."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fv_core.card import ModelCard, ParitySpec, derive
from fv_core.loop.samplers.sigmas import schedule
from fv_core.request import ResolvedRequest
from fv_core.testing.tiny import WORDS

kit: Any = importlib.import_module("kit")  # of the kit's own tests

AT = 3
"""The step at which the twins go wrong."""


class ByHand:
    """Euler's method with guidance, then the decoder frame by frame; every tensor under fv's name for it."""

    def __init__(
        self,
        components: Mapping[str, Any],
        card: ModelCard,
        request: ResolvedRequest,
        inputs: Mapping[str, Tensor],
    ) -> None:
        assert not inputs
        self.text = components["text"].module
        self.denoiser = components["denoiser"].module
        self.vae = components["vae"].module
        self.card = card
        self.request = request
        self.taps: dict[str, Tensor] = {}

    def run(self) -> dict[str, Tensor]:
        texts = {"cond": self.embeds("encode", self.request.prompt)}
        if self.request.guidance > 1:
            texts["uncond"] = self.embeds("encode_negative", self.request.negative_prompt)
        self.decode(self.denoise(texts))
        return self.taps

    def embeds(self, node: str, prompt: str) -> Tensor:
        codes = prompt.encode()[:WORDS].ljust(WORDS, b" ")
        embeds: Tensor = self.text(torch.tensor(list(codes)))
        self.taps |= {f"{node}/0/cond/embeds": embeds, f"{node}/0/embeds": embeds}
        return embeds

    def denoise(self, texts: Mapping[str, Tensor]) -> Tensor:
        request, recipe = self.request, self.card.recipe
        plan = schedule(recipe.sigma_rule, request.steps, recipe.shift)
        shape = self.card.geometry(request.size, request.frames).latent
        latent = torch.randn(shape, generator=torch.Generator().manual_seed(request.seed))
        for step, timestep in enumerate(plan.timesteps):
            found = {}
            for branch, text in texts.items():
                found[branch] = self.velocity(latent, text, timestep, step)
                self.taps[f"denoise/{step}/{branch}/velocity"] = found[branch]
            velocity = found["cond"]
            if "uncond" in found:
                velocity = found["uncond"] + request.guidance * (velocity - found["uncond"])
            latent = self.stepped(latent, velocity, plan.sigmas, step)
            self.taps[f"denoise/{step}/latent"] = latent
        return latent

    def velocity(self, latent: Tensor, text: Tensor, timestep: int, step: int) -> Tensor:
        shift = self.denoiser.text(text.mean(0)).view(-1, 1, 1, 1) * (timestep / 1000)
        velocity: Tensor = self.denoiser.conv(latent.unsqueeze(0))[0] + shift
        return velocity

    def stepped(self, latent: Tensor, velocity: Tensor, sigmas: Tensor, step: int) -> Tensor:
        return latent + (sigmas[step + 1] - sigmas[step]) * velocity

    def decode(self, latent: Tensor) -> None:
        latent = latent * 0.5
        self.taps["decode/0/cond/latent"] = latent
        past, chunks = torch.zeros_like(latent[:, :1]), []
        for index in range(latent.shape[1]):
            frame = latent[:, index : index + 1]
            cells = self.vae((frame + past).permute(1, 2, 3, 0))[0]
            height, width, _ = cells.shape
            pixels = cells.view(height, width, 4, 8, 8, 3).permute(2, 0, 3, 1, 4, 5)
            chunks.append(pixels.reshape(4, 8 * height, 8 * width, 3)[: 4 if index else 1].sigmoid())
            self.taps[f"decode/{index + 1}/cond/frames"] = chunks[-1]
            past = frame
        self.taps |= {f"decode/{len(chunks)}/video": torch.cat(chunks), "video": torch.cat(chunks)}


class OtherVelocity(ByHand):
    """One number of one velocity is another."""

    def velocity(self, latent: Tensor, text: Tensor, timestep: int, step: int) -> Tensor:
        velocity = super().velocity(latent, text, timestep, step).clone()
        velocity[1, 0, 1, 0] += 0.5 * (step == AT)
        return velocity


class OtherStep(ByHand):
    """Goes a little further in one step."""

    def stepped(self, latent: Tensor, velocity: Tensor, sigmas: Tensor, step: int) -> Tensor:
        return super().stepped(latent, velocity, sigmas, step) + 0.25 * (step == AT)


def reference(*given: Any) -> dict[str, Tensor]:
    return ByHand(*given).run()


def other_velocity(*given: Any) -> dict[str, Tensor]:
    return OtherVelocity(*given).run()


def other_step(*given: Any) -> dict[str, Tensor]:
    return OtherStep(*given).run()


def raising(*given: Any) -> dict[str, Tensor]:
    raise ArithmeticError("no reference today")


def claiming(runner: str, **claim: Any) -> ModelCard:
    """The small model, claiming parity with a function of this module."""
    facts: dict[str, Any] = {"reference_version": torch.__version__, "rungs": ("C0", "C1"), **claim}
    return derive(
        kit.GOOD, parity=ParitySpec(reference="torch.ByHand", runner=f"{__name__}:{runner}", **facts)
    )


CARD = claiming("reference")
