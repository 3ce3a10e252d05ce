"""Guidance: which branches are computed in which order, and how they are combined."""

from __future__ import annotations

import pytest
import torch

from fv_core.loop.policies.guidance import COND, UNCOND, Guidance, branches, combine


@pytest.mark.parametrize("policy", Guidance)
def test_an_unguided_step_computes_one_branch(policy: Guidance) -> None:
    assert branches(policy, guided=False) == (COND,)


def test_classic_computes_the_conditional_branch_first_and_joint_last() -> None:
    assert branches(Guidance.CLASSIC, guided=True) == (COND, UNCOND)
    assert branches(Guidance.JOINT, guided=True) == (UNCOND, COND)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_combine_extrapolates_from_uncond_in_the_dtype_of_the_velocities(dtype: torch.dtype) -> None:
    cond, uncond = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    combined = combine(cond, uncond, 5.0)
    assert combined.dtype == dtype
    assert torch.equal(combined, uncond + 5.0 * (cond - uncond))
    assert not torch.equal(combined, combine(uncond, cond, 5.0))
