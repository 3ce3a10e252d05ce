"""Noise levels are those of the pipeline's scheduler, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.ltx2.pipeline_ltx2 import calculate_shift
from diffusers.pipelines.ltx2.utils import DISTILLED_SIGMA_VALUES, STAGE_2_DISTILLED_SIGMA_VALUES

from fv_ltx2.card import DISTILLED
from fv_ltx2.schedule import Shift, fixed, shifted, timesteps

Schedulers = Mapping[str, Callable[[], Any]]


@pytest.mark.parametrize("sigmas", [DISTILLED_SIGMA_VALUES, STAGE_2_DISTILLED_SIGMA_VALUES])
def test_fixed_lists_equal_the_scheduler(sigmas: list[float], schedulers: Schedulers) -> None:
    scheduler = schedulers["fixed"]()
    scheduler.set_timesteps(len(sigmas), sigmas=sigmas)
    assert torch.equal(fixed(sigmas), scheduler.sigmas)
    assert timesteps(fixed(sigmas)) == tuple(scheduler.timesteps.tolist())


def test_cards_have_the_references_lists() -> None:
    assert list(DISTILLED.recipe.sigmas) == DISTILLED_SIGMA_VALUES
    assert DISTILLED.loops["refine"].params["sigmas"] == tuple(STAGE_2_DISTILLED_SIGMA_VALUES)


@pytest.mark.parametrize("steps", [2, 3, 8, 30, 47])
@pytest.mark.parametrize("tokens", [1, 12, 1024, 4096, 6144, 24576])
def test_shifted_grid_equals_the_scheduler(steps: int, tokens: int, schedulers: Schedulers) -> None:
    scheduler = schedulers["shifted"]()
    mu = calculate_shift(tokens, 1024, 4096, 0.95, 2.05)
    scheduler.set_timesteps(steps, sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
    mine = shifted(steps, tokens, Shift())
    assert torch.equal(mine, scheduler.sigmas)
    assert timesteps(mine) == tuple(scheduler.timesteps.tolist())


def test_grid_falls_from_one_to_the_terminal_and_then_to_zero() -> None:
    sigmas = shifted(10, 500, Shift())
    assert sigmas[0] == 1
    assert sigmas[-2] == pytest.approx(0.1, abs=1e-6)
    assert sigmas[-1] == 0
    assert (sigmas.diff() < 0).all()
