"""Ways of sampling that the pipeline does not offer, against the same modules stepped by hand with diffusers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from fv_core import ModelCard, OutputSpec, Request, derive
from fv_core.card import SigmaRule
from fv_core.loop.samplers.sigmas import schedule


class ByHand:
    """The pipeline's modules on one case: what each step computes is stated here, not taken from fv."""

    @torch.no_grad()
    def __init__(self, pipeline: Any, case: Any) -> None:
        self.pipeline = pipeline
        self.case = case
        self.cond, self.uncond = pipeline.encode_prompt(
            case.prompt, case.negative, max_sequence_length=512, device=torch.device("cpu")
        )
        width, height = case.size
        shape = (1, 16, (case.frames - 1) // 4 + 1, height // 8, width // 8)
        self.latent = torch.randn(shape, generator=torch.Generator("cpu").manual_seed(case.seed))

    def velocity(self, text: Tensor, timestep: int) -> Tensor:
        latents = self.latent.expand(len(text), *self.latent.shape[1:])
        timesteps = torch.full((len(text),), timestep)
        out: Tensor = self.pipeline.transformer(latents, timesteps, text, return_dict=False)[0]
        return out

    def guided(self, cond: Tensor, uncond: Tensor) -> Tensor:
        scale: float = self.case.guidance
        return uncond + scale * (cond - uncond)

    def classic(self, timestep: int) -> Tensor:
        cond, uncond = self.velocity(self.cond, timestep), self.velocity(self.uncond, timestep)
        return self.guided(cond, uncond)

    def joint(self, timestep: int) -> Tensor:
        uncond, cond = self.velocity(torch.cat([self.uncond, self.cond]), timestep).chunk(2)
        return self.guided(cond, uncond)

    @torch.no_grad()
    def run(
        self, scheduler: Any, timesteps: list[int], guided: Callable[[int], Tensor]
    ) -> Mapping[str, Tensor]:
        for shown, timestep in zip(scheduler.timesteps, timesteps, strict=True):
            self.latent = scheduler.step(guided(timestep), shown, self.latent, return_dict=False)[0]
        vae = self.pipeline.vae
        mean = torch.tensor(vae.config.latents_mean).view(1, 16, 1, 1, 1)
        std = 1.0 / torch.tensor(vae.config.latents_std).view(1, 16, 1, 1, 1)
        video = vae.decode(self.latent / std + mean, return_dict=False)[0]
        frames = (video[0] * 0.5 + 0.5).clamp(0, 1).permute(1, 2, 3, 0)
        return {"latent": self.latent[0], "video": frames}


def euler(card: ModelCard) -> ModelCard:
    """The same card with Euler's method, and recipe to match."""
    semantics = "flow.euler.cfg/v1"
    loops = {**card.loops, "denoise": replace(card.loops["denoise"], semantics=semantics)}
    return derive(card, loops=loops, recipe={"assumes_loop": semantics})


@pytest.mark.parametrize("steps", [1, 6])
def test_joint_guidance_equals_one_forward_of_both_branches(
    steps: int, mine: Any, reference: Any, case_of: Any, card_for: Any, unipc_of: Any, compare: Any
) -> None:
    case = case_of(steps=steps, negative="grey", guidance=3.0, frames=9)
    scheduler = unipc_of(case.shift)
    scheduler.set_timesteps(steps)
    by_hand = ByHand(reference.pipeline("float32"), case)
    theirs = by_hand.run(scheduler, scheduler.timesteps.tolist(), by_hand.joint)
    assert compare(mine.outputs(case, card_for(case, cfg="joint")), theirs) == 0.0


def test_joint_guidance_is_another_computation_than_classic(
    mine: Any, case_of: Any, card_for: Any, compare: Any
) -> None:
    case = case_of(frames=9)
    difference = compare(mine.outputs(case, card_for(case, cfg="joint")), mine.outputs(case))
    assert 0.0 < difference < 1e-4


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_euler_equals_the_flow_match_euler_scheduler(
    steps: int, mine: Any, reference: Any, case_of: Any, card_for: Any, compare: Any
) -> None:
    case = case_of(steps=steps, frames=9)
    plan = schedule(SigmaRule.DIFFUSERS, steps, case.shift)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=1.0)
    scheduler.set_timesteps(sigmas=plan.sigmas[:-1].tolist())
    assert torch.equal(scheduler.sigmas, plan.sigmas)
    by_hand = ByHand(reference.pipeline("float32"), case)
    theirs = by_hand.run(scheduler, list(plan.timesteps), by_hand.classic)
    assert compare(mine.outputs(case, euler(card_for(case))), theirs) == 0.0


def test_euler_is_another_method_than_unipc(mine: Any, case_of: Any, card_for: Any, compare: Any) -> None:
    case = case_of()
    assert compare(mine.outputs(case, euler(card_for(case))), mine.outputs(case)) > 1e-3


def test_official_sigma_rule_equals_the_scheduler_on_the_official_sigmas(
    mine: Any, reference: Any, case_of: Any, card_for: Any, unipc_of: Any, compare: Any
) -> None:
    case = case_of()
    official = derive(card_for(case), recipe={"sigma_rule": SigmaRule.WAN_OFFICIAL})
    scheduler = unipc_of(case.shift)
    scheduler.set_timesteps(sigmas=np.linspace(0.9990000128746033, 0, case.steps + 1)[:-1])
    by_hand = ByHand(reference.pipeline("float32"), case)
    theirs = by_hand.run(scheduler, scheduler.timesteps.tolist(), by_hand.classic)
    assert compare(mine.outputs(case, official), theirs) == 0.0
    assert compare(mine.outputs(case), theirs) > 1e-4


def test_recipe_gives_steps_guidance_and_shift_where_the_request_says_nothing(
    mine: Any, case_of: Any, card_for: Any
) -> None:
    case = case_of(steps=2, guidance=1.5, shift=8.0)
    stated = mine.outputs(case)
    card = derive(card_for(case), recipe={"steps": 2, "guidance": 1.5, "shift": 8.0})
    keep = OutputSpec(keep=("latent",))
    silent = Request(prompt=case.prompt, seed=case.seed, size=case.size, frames=case.frames, output=keep)
    assert torch.equal(mine.engine(card).run(silent).tensors["latent"], stated["latent"])
