"""Random streams as values: the same numbers as a generator that is carried along, and diffusers' initial noise."""

from __future__ import annotations

import pytest
import torch
from diffusers.utils.torch_utils import randn_tensor

from fv_core.loop.rng import seed_state, torch_normal


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**63, 2**64 - 1])
def test_noise_of_a_seed_equals_diffusers(seed: int) -> None:
    shape = (16, 3, 8, 6)
    numbers, _ = torch_normal(seed_state(seed), shape)
    generator = torch.Generator("cpu").manual_seed(seed)
    theirs = randn_tensor((1, *shape), generator=generator, device=torch.device("cpu"), dtype=torch.float32)
    assert torch.equal(numbers, theirs[0])


def test_a_stream_goes_on_where_it_stopped() -> None:
    generator = torch.Generator("cpu").manual_seed(3)
    state = seed_state(3)
    for shape in ((5,), (2, 40), (1,)):
        numbers, state = torch_normal(state, shape)
        assert torch.equal(numbers, torch.randn(shape, generator=generator))
    assert torch.equal(state, generator.get_state())


def test_drawing_changes_neither_the_state_given_nor_the_global_stream() -> None:
    state, before = seed_state(1), torch.random.get_rng_state()
    kept = state.clone()
    torch_normal(state, (64,))
    assert torch.equal(state, kept)
    assert torch.equal(torch.random.get_rng_state(), before)
