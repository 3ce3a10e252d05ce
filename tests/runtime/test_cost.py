"""The cost model says what it measured, and something sensible of what it did not."""

from __future__ import annotations

import random

import pytest

from fv_core.runtime.scheduler.cost import CostModel


def test_an_unknown_key_is_its_prior() -> None:
    assert CostModel(prior=lambda key: 3.0 if key == "large" else 1.0).step_seconds("large", 1) == 3.0


def test_it_follows_what_is_measured() -> None:
    costs, rng = CostModel(prior=lambda key: 100.0), random.Random(0)
    for _ in range(60):
        costs.observe("k", 1, rng.gauss(2.0, 0.2))
    assert costs.step_seconds("k", 1) == pytest.approx(2.0, rel=0.1)
    for _ in range(60):
        costs.observe("k", 1, 1.0)
    assert costs.step_seconds("k", 1) == pytest.approx(1.0, rel=0.05)


def test_sizes_between_are_interpolated_and_those_beyond_grow() -> None:
    costs = CostModel(prior=lambda key: 1.0)
    costs.observe("k", 2, 2.0)
    costs.observe("k", 4, 3.0)
    assert costs.step_seconds("k", 3) == 2.5
    assert costs.step_seconds("k", 8) > costs.step_seconds("k", 4)
    assert costs.step_seconds("k", 1) < costs.step_seconds("k", 2)


def test_one_size_is_not_forgotten_while_others_are_measured() -> None:
    costs = CostModel(prior=lambda key: 1.0)
    costs.observe("k", 1, 1.0)
    for _ in range(1000):
        costs.observe("k", 8, 4.0)
    assert costs.step_seconds("k", 1) == 1.0
