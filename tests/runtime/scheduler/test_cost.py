"""The cost model says what it measured, and something sensible of what it did not."""

from __future__ import annotations

import random

import pytest

from fv_core.runtime.scheduler.cost import CostModel, Learned, Mean


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


def test_the_first_of_all_pays_for_what_is_prepared_once_and_is_not_averaged_in() -> None:
    costs = CostModel(prior=lambda key: 1.0)
    costs.observe("k", 1, 60.0)
    assert costs.step_seconds("k", 1) == 60.0
    for seconds in (2.0, 4.0, 6.0):
        costs.observe("k", 1, seconds)
    assert costs.step_seconds("k", 1) == pytest.approx(4.0)


def test_what_is_usually_taken_of_the_steps_is_learned() -> None:
    costs = CostModel(prior=lambda key: 1.0)
    assert costs.of("k").share == 1.0
    costs.observe("k", 1, 1.0)
    for _ in range(60):
        costs.ended("k", 0.25)
    assert costs.of("k").share == pytest.approx(0.25, abs=0.01)


def test_another_begins_from_what_one_has_learned_but_keeps_what_it_measured() -> None:
    one, other = CostModel(prior=lambda key: 9.0), CostModel(prior=lambda key: 9.0)
    for rows, seconds in ((1, 1.0), (4, 2.0), (4, 2.0)):
        one.observe("k", rows, seconds)
    one.observe("mine", 1, 3.0)
    one.ended("k", 0.5)
    known = dict(one.learned())
    assert known["k"] == Learned(
        means=(Mean(rows=1, seconds=1.0, count=1), Mean(rows=4, seconds=2.0, count=2)), share=0.95
    )
    other.observe("mine", 1, 5.0)
    for key, learned in known.items():
        other.restore(key, learned)
    assert (other.step_seconds("k", 4), other.of("k").share) == (2.0, 0.95)
    assert other.step_seconds("mine", 1) == 5.0
    assert other.knows("k") and not other.knows("unheard of")
