"""The order of samples: every epoch has each once, whatever the buckets, and any step can be asked for first."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fv_core.training.contract import Bucket
from fv_core.training.order import Order

BUCKETS = [Bucket(frames=1, height=16, width=16 * (i + 1)) for i in range(3)]


def order(sizes: list[int], total: int, *, seed: int = 0, shuffle: bool = True) -> Order:
    buckets = [bucket for bucket, size in zip(BUCKETS, sizes, strict=False) for _ in range(size)]
    return Order(buckets, total=total, seed=seed, shuffle=shuffle)


@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=3), total=st.integers(1, 6), seed=st.integers(0, 3)
)
def test_nothing_is_dropped_and_a_step_has_one_bucket(sizes: list[int], total: int, seed: int) -> None:
    made = order(sizes, total, seed=seed)
    taken = [made.picks(step) for step in range(40)]
    bounds = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    for picks in taken:
        assert len(picks) == total
        assert len({next(i for i, bound in enumerate(bounds) if pick.index < bound) for pick in picks}) == 1
    seen = Counter((pick.index, pick.epoch) for picks in taken for pick in picks)
    assert set(seen.values()) == {1}, "a sample comes once an epoch"
    for bucket, size in enumerate(sizes):
        own = sorted(pick.epoch for picks in taken for pick in picks if _bucket(pick.index, bounds) == bucket)
        for epoch in range(own[-1] - 1 if own else 0):
            assert own.count(epoch) == size, (
                "an epoch of a bucket is whole before the one after the next begins"
            )


@given(step=st.integers(0, 500))
def test_a_step_follows_from_its_number_alone(step: int) -> None:
    earlier = order([5, 3], 4)
    for before in range(step, max(0, step - 3), -1):
        earlier.picks(before)
    assert earlier.picks(step) == order([5, 3], 4).picks(step)


def test_epochs_are_shuffled_apart_and_by_the_seed() -> None:
    epochs = [[pick.index for pick in order([16], 16).picks(step)] for step in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(16)) and epochs[0] != epochs[1]
    assert [pick.index for pick in order([16], 16, seed=1).picks(0)] != epochs[0]
    assert [pick.index for pick in order([16], 16, shuffle=False).picks(0)] == list(range(16))


def _bucket(index: int, bounds: list[int]) -> int:
    return next(i for i, bound in enumerate(bounds) if index < bound)
