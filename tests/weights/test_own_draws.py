"""Draws of its own: the bits that the global generator gives after the same seed, without the global generator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fv_core.errors import WeightsError
from fv_core.weights.own_draws import OwnDraws

DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "uniform_": lambda: torch.empty(33).uniform_(-1, 2),
    "normal_": lambda: torch.empty(40).normal_(2, 3),
    "bernoulli_": lambda: torch.empty(9).bernoulli_(0.4),
    "exponential_": lambda: torch.empty(9).exponential_(),
    "rand": lambda: torch.rand(3),
    "randn": lambda: torch.randn(5, 6),
    "randn_like": lambda: torch.randn_like(torch.zeros(4)),
    "randint": lambda: torch.randint(10, (4,)),
    "randint.low": lambda: torch.randint(2, 10, (4,)),
    "randperm": lambda: torch.randperm(9),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 3),
    "trunc_normal_": lambda: nn.init.trunc_normal_(torch.empty(20)),
    "orthogonal_": lambda: nn.init.orthogonal_(torch.empty(4, 4)),
    "kaiming_uniform_": lambda: nn.init.kaiming_uniform_(torch.empty(4, 4)),
    "dropout": lambda: nn.functional.dropout(torch.ones(10), 0.5),
}


@pytest.mark.parametrize("name", DRAWS)
def test_bits_are_those_after_the_same_seed_and_the_global_generator_rests(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        expected = DRAWS[name]()
        before = torch.get_rng_state()
        with OwnDraws(3):
            drawn = DRAWS[name]()
        assert torch.equal(drawn, expected)
        assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_that_is_given_is_used() -> None:
    with OwnDraws(3):
        drawn = torch.rand(4, generator=torch.Generator().manual_seed(8))
    assert torch.equal(drawn, torch.rand(4, generator=torch.Generator().manual_seed(8)))


def test_an_operation_that_takes_no_generator_is_refused() -> None:
    with OwnDraws(3), pytest.raises(WeightsError, match="native_dropout") as raised:
        torch.native_dropout(torch.ones(10), 0.5, True)
    assert raised.value.code == "FV257"
