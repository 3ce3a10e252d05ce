"""The formulas against closed forms (F2, F4), each with the mutants that must fail."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fv_core.training.maths import (
    cosmap_weight,
    ema_update,
    flow_losses,
    learning_rate,
    logit_normal,
    noised,
    shifted,
    shifted_uniform,
    stratified,
    velocity_target,
)

N = 100_000
LIMIT = 1.63 / math.sqrt(N)
"""Of the Kolmogorov-Smirnov distance, at 1 %."""


def uniform() -> Tensor:
    return torch.rand(N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def distance(samples: Tensor, cdf: Callable[[Tensor], Tensor]) -> float:
    """Between the samples' own distribution and a CDF."""
    expected = cdf(samples.sort().values)
    steps = torch.arange(1, len(samples) + 1, dtype=torch.float64) / len(samples)
    return float(torch.maximum((steps - expected).abs(), (steps - 1 / len(samples) - expected).abs()).max())


def cdf_shifted(s: Tensor, shift: float = 5.0) -> Tensor:
    return s / (shift - (shift - 1) * s)


def cdf_logit_normal(s: Tensor, mean: float = 0.3, std: float = 1.0) -> Tensor:
    probability: Tensor = torch.special.ndtr((torch.logit(s) - mean) / std)
    return probability


def sliced(cdf: Callable[[Tensor], Tensor], low: float, high: float) -> Callable[[Tensor], Tensor]:
    begin, end = cdf(torch.tensor([low, high], dtype=torch.float64))
    return lambda s: (cdf(s) - begin) / (end - begin)


def test_noise_levels_have_their_density() -> None:
    u = uniform()
    assert distance(shifted_uniform(u, shift=5.0), cdf_shifted) < LIMIT
    assert distance(logit_normal(u, mean=0.3, std=1.0), cdf_logit_normal) < LIMIT


def test_slices_renormalise_the_density() -> None:
    u = uniform()
    shifted_slice = shifted_uniform(u, shift=5.0, low=0.2, high=0.7)
    assert float(shifted_slice.min()) >= 0.2 and float(shifted_slice.max()) <= 0.7
    assert distance(shifted_slice, sliced(cdf_shifted, 0.2, 0.7)) < LIMIT
    normal_slice = logit_normal(u, mean=0.3, std=1.0, low=0.2, high=0.7)
    assert distance(normal_slice, sliced(cdf_logit_normal, 0.2, 0.7)) < LIMIT


MUTANTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "shifted twice": (lambda u: shifted(shifted_uniform(u, shift=5.0), 5.0), cdf_shifted),
    "not shifted": (lambda u: u, cdf_shifted),
    "another std": (lambda u: logit_normal(u, mean=0.3, std=1.1), cdf_logit_normal),
    "clamped slice": (lambda u: shifted(u, 5.0).clamp(0.2, 0.7), sliced(cdf_shifted, 0.2, 0.7)),
    "squeezed slice": (lambda u: 0.2 + 0.5 * shifted(u, 5.0), sliced(cdf_shifted, 0.2, 0.7)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_another_density_is_seen(mutant: str) -> None:
    sample, cdf = MUTANTS[mutant]
    assert distance(sample(uniform()), cdf) > 3 * LIMIT


def test_strata_have_one_sample_each() -> None:
    u = stratified(torch.rand(8, dtype=torch.float64), range(8), 8)
    assert [int(value * 8) for value in u] == list(range(8))


def test_the_extreme_uniform_numbers_give_noise_levels_that_divide() -> None:
    ends = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    for s in (shifted_uniform(ends, shift=3.0), logit_normal(ends, mean=0.0, std=1.0)):
        assert torch.isfinite(s).all() and (s >= 0).all() and (s <= 1).all()


def test_a_loss_by_hand() -> None:
    """F4: two samples of four elements, of which the second has one frame that counts."""
    velocity = torch.tensor([[1.0, 2, 3, 4], [1, 1, 5, 5]]).view(2, 1, 2, 1, 2).requires_grad_()
    target = torch.zeros(2, 1, 2, 1, 2)
    losses = flow_losses(velocity, target, torch.tensor([2.0, 3.0]), [None, 1])
    assert losses.tolist() == [2 * (1 + 4 + 9 + 16) / 4, 3 * (1 + 1) / 2]
    losses.sum().backward()
    assert velocity.grad is not None
    assert velocity.grad[1, 0, 1].abs().sum() == 0, "a frame of padding has no gradient"
    padded = (velocity - target).square().flatten(1).mean(1)  # the mutant: a mean over padded frames
    assert padded[1] != losses[1] / 3


def test_target_is_the_derivative_of_the_path() -> None:
    x0, eps = torch.randn(2, 1, 3, 4, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    s, h = torch.tensor([0.3], dtype=torch.float64), 1e-6
    slope = (noised(x0, eps, s + h) - noised(x0, eps, s - h)) / (2 * h)
    assert torch.allclose(slope, velocity_target(x0, eps), atol=1e-8)
    assert not torch.allclose(slope, -velocity_target(x0, eps), atol=1e-1)


def test_cosmap_weighs_as_a_density() -> None:
    s = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    assert float(torch.trapezoid(cosmap_weight(s), s)) == pytest.approx(1, abs=1e-6)


def test_the_learning_rate_rises_stays_and_falls() -> None:
    factors = [learning_rate(step, steps=10, warmup=2, decay=0.4) for step in range(10)]
    assert factors == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25])
    assert {learning_rate(step, steps=10) for step in range(10)} == {1.0}


def test_the_average_is_the_closed_form() -> None:
    values = [torch.tensor([float(k)], dtype=torch.float64) for k in range(1, 6)]
    average = [torch.zeros(1, dtype=torch.float64)]
    for value in values:
        ema_update(average, [value], 0.9)
    closed = sum(0.9 ** (5 - k) * 0.1 * k for k in range(1, 6))
    assert float(average[0]) == pytest.approx(closed, abs=1e-12)
