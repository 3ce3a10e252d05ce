"""What joins a forward, decided from seconds that a clock of the test's own tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fv_core import Engine
from fv_core.errors import RequestError
from fv_core.runtime.gain import PAYS, Always, Measured

KIND = "a shape"


@dataclass(kw_only=True)
class Machine:
    """Runs forwards that take what `cost` says, one after another, by a clock of its own."""

    cost: Callable[[int], float]
    now: float = 0.0

    def gain(self) -> Measured:
        return Measured(torch.device("cpu"), clock=lambda: self.now)

    def step(self, gain: Measured, waiting: int, unit: int = 1) -> list[int]:
        """The rows of each forward that `waiting` rows, in units, run in."""
        sizes = []
        while waiting:
            rows = unit
            while rows < waiting and gain.joins(KIND, rows, unit):
                rows += unit
            with gain.timed(KIND, rows):
                self.now += self.cost(rows)
            sizes.append(rows)
            waiting -= rows
        return sizes


def linear(fixed: float, each: float) -> Callable[[int], float]:
    return lambda rows: fixed + each * rows


def test_sizes_are_tried_from_one_row_up_and_end_at_all_that_wait_where_sharing_is_free() -> None:
    machine = Machine(cost=linear(1.0, 0.0))
    gain = machine.gain()
    assert machine.step(gain, 16) == [1, 1, 2, 2, 4, 4, 2]
    assert machine.step(gain, 16) == [8, 8]
    assert machine.step(gain, 16) == [16]
    assert machine.step(gain, 16) == [16]


def test_rows_that_gain_nothing_run_alone_after_two_pairs() -> None:
    machine = Machine(cost=linear(0.0, 1.0))
    gain = machine.gain()
    assert machine.step(gain, 8) == [1, 1, 2, 2, 1, 1]
    assert machine.step(gain, 8) == [1] * 8


@pytest.mark.parametrize(("pair", "joins"), [(1.6875, True), (1.75, False)])
def test_a_row_joins_where_the_forward_takes_at_most_085_of_two(pair: float, joins: bool) -> None:
    machine = Machine(cost={1: 1.0, 2: pair}.__getitem__)
    gain = machine.gain()
    machine.step(gain, 2)
    machine.step(gain, 2)
    machine.step(gain, 2)
    assert machine.step(gain, 2) == ([2] if joins else [1, 1])
    assert PAYS == 0.85


def test_a_forward_stops_growing_where_one_more_row_does_not_pay() -> None:
    """t(B) = 1 + B / 2: what a tenth row saves is less than 15 % of all the seconds of the other nine and its own."""
    machine = Machine(cost=linear(1.0, 0.5))
    gain = machine.gain()
    for _ in range(10):
        sizes = machine.step(gain, 16)
    largest = max(
        rows for rows in range(1, 17)
        if all(1 + (one + 1) / 2 <= PAYS * (1 + one / 2 + 1.5) for one in range(1, rows))
    )  # fmt: skip
    assert max(sizes) == largest == 9


def test_the_faster_of_two_forwards_counts() -> None:
    """The first pays for what is prepared once."""
    slow = iter([9.0, 1.0, 9.0, 1.2])
    machine = Machine(cost=lambda rows: next(slow, 1.0))
    gain = machine.gain()
    assert machine.step(gain, 6) == [1, 1, 2, 2]
    assert machine.step(gain, 2) == [2]


def test_groups_are_judged_by_their_rows() -> None:
    machine = Machine(cost=linear(1.0, 0.0))
    gain = machine.gain()
    assert machine.step(gain, 12, unit=2) == [2, 2, 4, 4]
    assert machine.step(gain, 12, unit=2) == [8, 4]
    assert machine.step(gain, 12, unit=2) == [8, 4]
    assert machine.step(gain, 12, unit=2) == [12]


def test_a_size_that_failed_is_not_joined_again() -> None:
    machine = Machine(cost=linear(1.0, 0.0))
    gain = machine.gain()
    machine.step(gain, 6)
    assert gain.joins(KIND, 2, 2)
    gain.failed(KIND, 4)
    assert not gain.joins(KIND, 2, 2)
    assert not gain.joins(KIND, 2, 1)  # between the two that are known
    assert gain.joins(KIND, 1, 1)


def test_what_was_refused_on_a_busy_machine_is_measured_anew_in_the_end() -> None:
    machine = Machine(cost=linear(0.0, 1.0))
    gain = machine.gain()
    machine.step(gain, 8)
    machine.cost = linear(1.0, 0.0)
    steps = 0
    while machine.step(gain, 8) != [8]:
        steps += 1
    assert 8 < steps < 32


def test_a_failure_of_the_forward_measures_nothing() -> None:
    machine = Machine(cost=linear(1.0, 0.0))
    gain = machine.gain()
    machine.step(gain, 2)
    with pytest.raises(ArithmeticError), gain.timed(KIND, 2):
        raise ArithmeticError
    assert machine.step(gain, 8) == [2, 2, 4]


def test_kinds_are_judged_apart_and_the_oldest_of_many_is_forgotten() -> None:
    machine = Machine(cost=linear(1.0, 0.0))
    gain = machine.gain()
    machine.step(gain, 8)
    assert gain.joins(KIND, 1, 1)
    assert not gain.joins("another", 1, 1)
    for number in range(512):
        gain.joins(number, 1, 1)
    assert not gain.joins(KIND, 1, 1)


def test_rows_that_never_waited_together_leave_nothing_behind() -> None:
    """A component that shares nothing gives every call a key of its own."""
    gain = Machine(cost=linear(1.0, 0.0)).gain()
    for number in range(3):
        with gain.timed(number, 1):
            pass
    assert gain._kinds == {}


COSTS = st.dictionaries(st.integers(1, 16), st.floats(0.01, 10.0), min_size=16, max_size=16)


@given(costs=COSTS, waiting=st.lists(st.integers(1, 16), min_size=1, max_size=12))
def test_decisions_follow_from_the_clock_alone(costs: Mapping[int, float], waiting: list[int]) -> None:
    one, other = Machine(cost=costs.__getitem__), Machine(cost=costs.__getitem__)
    gains = one.gain(), other.gain()
    for rows in waiting:
        sizes = one.step(gains[0], rows)
        assert sizes == other.step(gains[1], rows)
        assert sum(sizes) == rows


def test_always_shares_whatever_it_takes() -> None:
    gain = Always()
    with gain.timed(KIND, 1):
        gain.failed(KIND, 2)
    assert gain.joins(KIND, 1, 1)


@pytest.mark.parametrize("wrong", ["always", "", 0, 1.5, Always])
def test_an_engine_refuses_what_decides_nothing(wrong: object) -> None:
    with pytest.raises(RequestError, match="gain") as refused:
        Engine(["wan21/micro"], device="cpu", gain=wrong)  # type: ignore[arg-type]
    assert refused.value.code == "FV310"
