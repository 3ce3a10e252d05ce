"""The parity gate sees each mistake it exists for: every mutant below must differ from the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from fv_core.loop import flow_denoise
from fv_core.loop.policies.experts import expert
from fv_core.loop.policies.guidance import combine
from fv_core.loop.samplers import unipc
from fv_core.loop.samplers.sampler import UNIPC_2
from fv_core.loop.samplers.sigmas import TRAIN_TIMESTEPS, schedule
from fv_core.loop.samplers.unipc import UniPCState, unipc_step
from fv_wan21 import components

Mutation = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def mutate(mine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Patches that engines made from here on see, and no engine after the test."""
    mine.forget()
    yield monkeypatch
    mine.forget()


def swapped_branches(mutate: pytest.MonkeyPatch) -> None:
    mutate.setattr(flow_denoise, "combine", lambda cond, uncond, scale: combine(uncond, cond, scale))


def untruncated_timestep(mutate: pytest.MonkeyPatch) -> None:
    def untruncated(*facts: Any) -> Any:
        plan = schedule(*facts)
        return replace(plan, timesteps=tuple((plan.sigmas[:-1].double() * TRAIN_TIMESTEPS).tolist()))

    mutate.setattr(flow_denoise, "schedule", untruncated)
    mutate.setattr(components, "int", float, raising=False)  # the denoiser must not truncate it again


def rounded_timestep(mutate: pytest.MonkeyPatch) -> None:
    def rounded(*facts: Any) -> Any:
        plan = schedule(*facts)
        return replace(plan, timesteps=tuple(map(round, (plan.sigmas[:-1] * TRAIN_TIMESTEPS).tolist())))

    mutate.setattr(flow_denoise, "schedule", rounded)


def padding_not_zeroed(mutate: pytest.MonkeyPatch) -> None:
    mutate.setattr(components, "_without_padding", lambda embeds, mask: embeds)


def latents_times_std(mutate: pytest.MonkeyPatch) -> None:
    mutate.setattr(components, "_denormalised", lambda latent, mean, std: latent * std + mean)


def corrector_on_the_first_step(mutate: pytest.MonkeyPatch) -> None:
    def step(state: UniPCState, *, sample: Tensor, x0: Tensor, **more: Any) -> Any:
        if state.last_sample is None:
            before = replace(state, last_sample=sample, x0s=(x0,), order=1)
            sample = unipc._correct(before, sample, x0, 1)
        return unipc_step(state, sample=sample, x0=x0, **more)

    mutate.setitem(flow_denoise.SAMPLERS, "flow.unipc2.cfg/v1", replace(UNIPC_2, step=step))


def corrector_left_out(mutate: pytest.MonkeyPatch) -> None:
    def step(state: UniPCState, **given: Any) -> Any:
        return unipc_step(replace(state, last_sample=None), **given)

    mutate.setitem(flow_denoise.SAMPLERS, "flow.unipc2.cfg/v1", replace(UNIPC_2, step=step))


def experts_swapped(mutate: pytest.MonkeyPatch) -> None:
    other = {"denoiser": "denoiser_low", "denoiser_low": "denoiser"}
    mutate.setattr(flow_denoise, "expert", lambda *at: other[expert(*at)])


MUTATIONS: list[Mutation] = [
    swapped_branches,
    untruncated_timestep,
    rounded_timestep,
    padding_not_zeroed,
    latents_times_std,
    corrector_on_the_first_step,
    corrector_left_out,
    experts_swapped,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutant_differs_from_the_pipeline(
    mutation: Mutation, mutate: pytest.MonkeyPatch, difference: Callable[..., float]
) -> None:
    mutation(mutate)
    assert difference(boundary=0.9) > 0.0


def test_unmutated_run_of_the_same_case_equals_the_pipeline(
    mutate: pytest.MonkeyPatch, difference: Callable[..., float]
) -> None:
    assert difference(boundary=0.9) == 0.0
