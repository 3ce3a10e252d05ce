"""UniPC as pure functions gives the bits of diffusers' stateful scheduler, and leaves its inputs alone."""

from __future__ import annotations

import pytest
import torch
from diffusers import UniPCMultistepScheduler
from torch import Tensor

from fv_core.card import SigmaRule
from fv_core.loop.samplers.sigmas import schedule
from fv_core.loop.samplers.unipc import UniPCState, tabulated, unipc_init, unipc_step

SHAPE = (16, 2, 6, 4)
STEPS = [1, 2, 3, 6, 12, 50]
DTYPES = [(torch.float32, torch.float32), (torch.float32, torch.bfloat16), (torch.bfloat16, torch.bfloat16)]


def reference(steps: int, shift: float) -> UniPCMultistepScheduler:
    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=shift
    )
    scheduler.set_timesteps(steps)
    scheduler.set_begin_index(0)
    return scheduler


def numbers(count: int, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn((count, *SHAPE), generator=generator).to(dtype)


def step(
    state: UniPCState, sample: Tensor, velocity: Tensor, sigmas: Tensor, at: int
) -> tuple[Tensor, UniPCState]:
    x0 = sample - sigmas[at] * velocity
    return unipc_step(state, sample=sample, velocity=velocity, x0=x0, step=at)


def at_the_step(sigmas: Tensor, at: int) -> list[Tensor]:
    """What the reference computes of the noise levels at each step anew."""

    def log_snr(index: int) -> Tensor:
        return torch.log(1 - sigmas[index]) - torch.log(sigmas[index])

    h = log_snr(at + 1) - log_snr(at)
    phi_1 = torch.expm1(-h)
    facts = [sigmas[at + 1] / sigmas[at], (1 - sigmas[at + 1]) * phi_1]
    if at == 0:
        return [*facts, *torch.zeros(3)]
    rk = (log_snr(at - 1) - log_snr(at)) / h
    rks = torch.stack([rk, torch.ones(())])
    conditions = torch.stack([torch.pow(rks, 0), torch.pow(rks, 1)])
    phi_2 = phi_1 / -h - 1
    wanted = torch.stack([phi_2 * 1 / phi_1, (phi_2 / -h - 1 / 2) * 2 / phi_1])
    return [*facts, rk, *torch.linalg.solve(conditions, wanted)]


@pytest.mark.parametrize("rule", SigmaRule)
@pytest.mark.parametrize("shift", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("steps", [*STEPS, 15, 16, 17, 33, 100])
def test_what_is_tabulated_at_the_beginning_equals_what_is_computed_at_each_step_bit_for_bit(
    steps: int, shift: float, rule: SigmaRule
) -> None:
    sigmas = schedule(rule, steps, shift).sigmas
    anew = torch.stack([torch.stack(at_the_step(sigmas, at)) for at in range(steps)])
    assert torch.equal(tabulated(sigmas), anew)
    assert tabulated(sigmas).isfinite().all()


@pytest.mark.parametrize("shift", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize("steps", STEPS)
def test_trajectory_equals_the_scheduler_bit_for_bit(
    steps: int, dtypes: tuple[torch.dtype, torch.dtype], shift: float
) -> None:
    scheduler, sigmas = reference(steps, shift), schedule(SigmaRule.DIFFUSERS, steps, shift).sigmas
    mine = theirs = numbers(1, dtypes[0], seed=0)[0]
    state = unipc_init(sigmas)
    for at, velocity in enumerate(numbers(steps, dtypes[1], seed=steps)):
        mine, state = step(state, mine, velocity, sigmas, at)
        theirs = scheduler.step(velocity, scheduler.timesteps[at], theirs, return_dict=False)[0]
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs), f"step {at}"


def test_a_step_leaves_its_inputs_alone() -> None:
    sigmas, velocities = schedule(SigmaRule.DIFFUSERS, 4, 3.0).sigmas, numbers(4, torch.float32, seed=1)
    sample, state = numbers(1, torch.float32, seed=2)[0], unipc_init(sigmas)
    for at, velocity in enumerate(velocities):
        given = [
            sample,
            velocity,
            sigmas,
            *state.x0s,
            *([] if state.last_sample is None else [state.last_sample]),
        ]
        copies = [tensor.clone() for tensor in given]
        sample, state = step(state, sample, velocity, sigmas, at)
        assert all(torch.equal(tensor, copy) for tensor, copy in zip(given, copies, strict=True))


def test_a_state_can_be_stepped_twice_with_the_same_result() -> None:
    sigmas, velocities = schedule(SigmaRule.DIFFUSERS, 3, 3.0).sigmas, numbers(3, torch.float32, seed=3)
    sample, state = step(unipc_init(sigmas), numbers(1, torch.float32, seed=4)[0], velocities[0], sigmas, 0)
    first, _ = step(state, sample, velocities[1], sigmas, 1)
    step(state, sample, velocities[2], sigmas, 1)
    again, _ = step(state, sample, velocities[1], sigmas, 1)
    assert torch.equal(first, again)


def test_order_rises_to_two_and_falls_for_the_last_step() -> None:
    sigmas, velocities = schedule(SigmaRule.DIFFUSERS, 5, 3.0).sigmas, numbers(5, torch.float32, seed=5)
    sample, state, orders = numbers(1, torch.float32, seed=6)[0], unipc_init(sigmas), []
    for at, velocity in enumerate(velocities):
        sample, state = step(state, sample, velocity, sigmas, at)
        orders.append(state.order)
    assert orders == [1, 2, 2, 2, 1]
    assert len(state.x0s) == 2
