"""Expert routing: the boundary itself belongs to the high-noise expert, as in the reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fv_core.loop.policies.experts import HIGH, LOW, expert


def test_without_a_boundary_there_is_one_expert() -> None:
    assert {expert(timestep, None, 1000) for timestep in range(1001)} == {HIGH}


@pytest.mark.parametrize(("timestep", "role"), [(876, HIGH), (875, HIGH), (874, LOW)])
def test_boundary_belongs_to_the_high_noise_expert(timestep: int, role: str) -> None:
    assert expert(timestep, 0.875, 1000) == role


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_routing_equals_the_pipelines_comparison(timestep: int, thousandths: int) -> None:
    boundary = thousandths / 1000
    theirs = bool(torch.tensor(timestep) >= boundary * 1000)  # WanPipeline: t >= boundary_timestep
    assert (expert(timestep, boundary, 1000) == HIGH) is theirs
