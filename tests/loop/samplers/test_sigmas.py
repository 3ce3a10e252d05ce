"""Schedules equal their sources exactly: the official Wan scheduler's stored grids, and diffusers' own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import UniPCMultistepScheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from fv_core.card import SigmaRule
from fv_core.loop.samplers.sigmas import schedule

GOLDEN = Path(__file__).parents[2] / "goldens" / "wan_official_schedule.safetensors"
STORED = [(8, 3.0), (50, 3.0), (50, 8.0)]

steps = st.integers(1, 1000)
shifts = st.floats(0.01, 100.0)


def unipc(shift: float) -> UniPCMultistepScheduler:
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=shift
    )


@pytest.mark.parametrize(("count", "shift"), STORED)
def test_official_rule_equals_the_stored_grid(count: int, shift: float) -> None:
    golden, plan = load_file(GOLDEN), schedule(SigmaRule.WAN_OFFICIAL, count, shift)
    assert torch.equal(plan.sigmas.double(), golden[f"sigmas_s{count}_f{shift}"])
    assert list(plan.timesteps) == golden[f"timesteps_s{count}_f{shift}"].tolist()


@pytest.mark.parametrize(("count", "shift"), STORED)
def test_rules_are_different_grids(count: int, shift: float) -> None:
    golden, plan = load_file(GOLDEN), schedule(SigmaRule.DIFFUSERS, count, shift)
    assert (plan.sigmas - golden[f"sigmas_s{count}_f{shift}"]).abs().max() > 1e-3


@settings(max_examples=300)
@given(steps, shifts)
def test_diffusers_rule_equals_set_timesteps(count: int, shift: float) -> None:
    scheduler, plan = unipc(shift), schedule(SigmaRule.DIFFUSERS, count, shift)
    scheduler.set_timesteps(count)
    assert torch.equal(plan.sigmas, scheduler.sigmas)
    assert list(plan.timesteps) == scheduler.timesteps.tolist()


@settings(max_examples=100)
@given(steps, shifts)
def test_official_rule_equals_set_timesteps_on_the_official_sigmas(count: int, shift: float) -> None:
    scheduler, plan = unipc(shift), schedule(SigmaRule.WAN_OFFICIAL, count, shift)
    scheduler.set_timesteps(sigmas=np.linspace(float(np.float32(0.999)), 0, count + 1)[:-1])
    assert torch.equal(plan.sigmas, scheduler.sigmas)
    assert list(plan.timesteps) == scheduler.timesteps.tolist()


@settings(max_examples=100)
@given(st.sampled_from(SigmaRule), steps, shifts)
def test_every_schedule_falls_from_below_one_to_zero(rule: SigmaRule, count: int, shift: float) -> None:
    plan = schedule(rule, count, shift)
    assert plan.sigmas.dtype == torch.float32
    assert (len(plan.sigmas), len(plan.timesteps)) == (count + 1, count)
    assert (plan.sigmas.diff() <= 0).all()
    assert 0 < plan.sigmas[0] < 1
    assert plan.sigmas[-1] == 0
    assert all(0 <= timestep <= 999 for timestep in plan.timesteps)


def test_timesteps_are_truncated_not_rounded() -> None:
    assert schedule(SigmaRule.DIFFUSERS, 6, 3.0).timesteps == (999, 937, 857, 750, 600, 376)
