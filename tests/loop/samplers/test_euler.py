"""Euler as a pure function gives the bits of diffusers' flow-match scheduler."""

from __future__ import annotations

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler

from fv_core.card import SigmaRule
from fv_core.loop.samplers.euler import euler_init, euler_step
from fv_core.loop.samplers.sigmas import schedule

SHAPE = (16, 2, 6, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shift", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("steps", [1, 2, 6, 50])
def test_trajectory_equals_the_scheduler_bit_for_bit(steps: int, shift: float, dtype: torch.dtype) -> None:
    sigmas = schedule(SigmaRule.DIFFUSERS, steps, shift).sigmas
    scheduler = FlowMatchEulerDiscreteScheduler(shift=1.0)
    scheduler.set_timesteps(sigmas=sigmas[:-1].tolist())
    generator = torch.Generator("cpu").manual_seed(steps)
    mine = theirs = torch.randn(SHAPE, generator=generator)
    state = euler_init(sigmas)
    for at in range(steps):
        velocity = torch.randn(SHAPE, generator=generator).to(dtype)
        kept = (mine.clone(), velocity.clone())
        following, after = euler_step(state, sample=mine, velocity=velocity, x0=velocity, step=at)
        assert torch.equal(mine, kept[0])
        assert torch.equal(velocity, kept[1])
        theirs = scheduler.step(velocity, scheduler.timesteps[at], theirs, return_dict=False)[0]
        assert following.dtype == theirs.dtype
        assert torch.equal(following, theirs), f"step {at}"
        assert after is state
        mine = following
