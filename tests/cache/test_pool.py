"""A pool: never over its budget, never without what is held, and nothing left when all have let go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Tensor

from fv_core.cache import CacheContent, CacheKey
from fv_core.cache.key import stated
from fv_core.cache.pool import Entry, Pool, PoolCounters
from fv_core.errors import ResourceError

KEY = CacheKey(
    model="m", component="text", op="encode", weights="w", version=0, adapters=(), precision="float32", device="cpu",
    environment="e", numerics="exact", static=(), inputs=(), previous=(), part="output",
)  # fmt: skip
NOTHING = PoolCounters(
    entries=0, bytes=0, held_bytes=0, idle_entries=0, idle_bytes=0, hits=0, misses=0, budget=100
)


def key(number: int, **fields: Any) -> CacheKey:
    return replace(KEY, inputs=stated({"text": number}), **fields)


def numbers(count: int, value: float = 0.0) -> Tensor:
    """A tensor of `4 * count` bytes."""
    return torch.full((count,), value)


def refused(pool: Pool, content: CacheContent) -> str:
    with pytest.raises(ResourceError) as caught:
        pool.put(content)
    assert caught.value.code == "FV404"
    return str(caught.value)


def test_what_is_held_stays_and_what_nobody_holds_makes_room_oldest_first() -> None:
    pool = Pool("text_kv", 100)
    for number in range(3):
        pool.keep([numbers(5)], key(number))
    held = pool.put([numbers(5)])
    assert pool.find(key(0)) is not None  # the most recently used from here on
    pool.put([numbers(10)])
    assert [pool.find(key(number)) is not None for number in range(3)] == [True, False, True]
    assert (pool.bytes, pool.held_bytes) == (100, 60)
    assert "40 bytes of 100 are not held" in refused(pool, [numbers(11)])
    assert pool.find(key(0)) is not None, "given up in vain"
    pool.release(held)
    pool.put([numbers(11)])


def test_a_version_with_no_key_is_gone_with_its_last_hold() -> None:
    pool = Pool("stream", 100)
    entry = pool.put([numbers(10), "Rep", None])
    assert (pool.bytes, pool.held_bytes) == (43, 43)
    pool.hold(entry)
    pool.release(entry)
    assert pool.bytes == 43
    pool.release(entry)
    assert pool.counters() == NOTHING


def test_a_shared_version_is_one_whoever_puts_it_and_waits_idle_for_the_next() -> None:
    pool = Pool("text_kv", 100)
    one = pool.put([numbers(10)], key(1))
    assert pool.put([numbers(10)], key(1)) is one
    pool.release(one)
    pool.release(one)
    counters = pool.counters()
    assert (counters.entries, counters.bytes, counters.idle_entries, counters.idle_bytes) == (1, 40, 1, 40)
    assert pool.find(key(1)) is one
    assert pool.find(key(2)) is None


def test_storages_that_versions_share_count_once_and_a_view_counts_all_that_it_keeps_alive() -> None:
    pool = Pool("paged_kv", 100)
    block, more = numbers(10), numbers(5)
    first, second = pool.put([block]), pool.put([block[:4], more])
    assert pool.bytes == 60
    pool.release(first)
    assert pool.bytes == 60
    pool.release(second)
    assert pool.bytes == 0


def test_a_sole_holder_uses_a_version_up_and_gets_its_very_room() -> None:
    """So that a decoder's old and new features never exist side by side."""
    pool = Pool("stream", 40)
    content = pool.take(pool.put([numbers(10)]))
    assert pool.bytes == 0
    pool.put([*content[:0], numbers(10)])


@pytest.mark.parametrize("shared", [False, True], ids=["held twice", "with a key"])
def test_whoever_else_holds_a_version_goes_on_to_see_it_when_it_is_taken(shared: bool) -> None:
    pool = Pool("stream", 100)
    entry = pool.put([numbers(2, 1.0)], key(1) if shared else None)
    pool.hold(entry)
    content = pool.take(entry)
    content[0] = numbers(2, 2.0)
    content.append("Rep")
    assert [item.tolist() for item in entry.content if isinstance(item, Tensor)] == [[1.0, 1.0]]
    assert pool.held_bytes == 8
    assert (pool.find(key(1)) is entry) is shared


def test_a_result_that_does_not_fit_is_not_kept_and_evicts_nothing() -> None:
    pool = Pool("feature", 100)
    pool.keep([numbers(5)], key(1))
    pool.keep([numbers(26)], key(2))
    assert (pool.bytes, pool.misses) == (20, 2)
    assert pool.find(key(2)) is None
    assert pool.find(key(1)) is not None


def test_what_is_forgotten_is_found_no_more_but_lives_as_long_as_it_is_held() -> None:
    pool = Pool("text_kv", 100)
    for version in (0, 1):
        pool.keep([numbers(5)], key(1, version=version))
    held = pool.put([numbers(5)], key(2))
    pool.forget(lambda each: each.version == 0)
    assert [pool.find(each) is not None for each in (key(1), key(1, version=1), key(2))] == [
        False,
        True,
        False,
    ]
    assert pool.bytes == 40
    assert held.content[0] is not None
    again = pool.put([numbers(5)], key(2))
    assert again is not held
    pool.release(held)
    assert pool.find(key(2)) is again


class Pools(RuleBasedStateMachine):
    """Owners that put, append, fork, hold, release, take and close in any order, in a pool that is resized, evicted and
    made to forget, beside a model of what each holds and must see.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool("paged_kv", 60)
        self.held: list[tuple[str, Entry, list[float]]] = []
        self.value = 0.0

    def new(self, count: int) -> Tensor:
        self.value += 1
        return numbers(count, self.value)

    def entered(self, owner: str, content: CacheContent, key: CacheKey | None = None) -> None:
        try:
            entry = self.pool.put(content, key)
        except ResourceError:
            wanted = self.alive() | rooms(content)
            assert sum(wanted.values()) > self.pool.budget, "refused what would have fitted"
            return
        self.held.append((owner, entry, values(entry.content)))

    def alive(self) -> dict[int, int]:
        return rooms(item for _, entry, _ in self.held for item in entry.content)

    def chosen(self, data: st.DataObject) -> tuple[str, Entry, list[float]]:
        return self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    @rule(owner=st.sampled_from("ab"), count=st.integers(0, 6), number=st.none() | st.integers(0, 3))
    def put(self, owner: str, count: int, number: int | None) -> None:
        self.entered(owner, [self.new(count)], None if number is None else key(number))

    @rule(count=st.integers(0, 9), number=st.integers(0, 3))
    def keep(self, count: int, number: int) -> None:
        self.pool.keep([self.new(count)], key(number))

    @rule(owner=st.sampled_from("ab"), number=st.integers(0, 3))
    def find(self, owner: str, number: int) -> None:
        if (entry := self.pool.find(key(number))) is not None:
            self.pool.hold(entry)
            self.held.append((owner, entry, values(entry.content)))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), count=st.integers(0, 3))
    def append(self, data: st.DataObject, count: int) -> None:
        """Uses a version up: the list that it gave is changed from the front on, as a decoder does."""
        owner, entry, _ = self.chosen(data)
        content = self.pool.take(entry)
        content[0] = self.new(count)
        self.entered(owner, [*content, self.new(count)])

    @precondition(lambda self: self.held)
    @rule(data=st.data(), count=st.integers(0, 3))
    def fork(self, data: st.DataObject, count: int) -> None:
        owner, entry, seen = self.chosen(data)
        self.held.append((owner, entry, seen))
        self.entered(owner, [*entry.content, self.new(count)])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        owner, entry, seen = self.chosen(data)
        self.pool.hold(entry)
        self.held += [(owner, entry, seen)] * 2

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.pool.release(self.chosen(data)[1])

    @rule(owner=st.sampled_from("ab"))
    def close(self, owner: str) -> None:
        for _, entry, _ in [one for one in self.held if one[0] == owner]:
            self.pool.release(entry)
        self.held = [one for one in self.held if one[0] != owner]

    @rule(wanted=st.integers(0, 80))
    def evict(self, wanted: int) -> None:
        freed = self.pool.evict(wanted)
        assert freed >= wanted or not self.pool.counters().idle_bytes

    @rule(number=st.integers(0, 3))
    def forget(self, number: int) -> None:
        self.pool.forget(lambda each: each == key(number))
        assert self.pool.find(key(number)) is None

    @invariant()
    def the_budget_holds(self) -> None:
        assert self.pool.held_bytes <= self.pool.bytes <= self.pool.budget

    @invariant()
    def every_holder_sees_what_it_saw(self) -> None:
        for _, entry, seen in self.held:
            assert values(entry.content) == seen

    @invariant()
    def bytes_and_holds_are_those_of_the_holders(self) -> None:
        assert self.pool.held_bytes == sum(self.alive().values())
        assert {id(entry): entry.held for _, entry, _ in self.held} == {
            id(entry): sum(entry is other for _, other, _ in self.held) for _, entry, _ in self.held
        }
        counters = self.pool.counters()
        assert counters.entries - counters.idle_entries == len({id(entry) for _, entry, _ in self.held})

    def teardown(self) -> None:
        for _, entry, _ in self.held:
            self.pool.release(entry)
        assert self.pool.held_bytes == 0
        assert self.pool.counters().entries == self.pool.counters().idle_entries
        self.pool.forget(lambda each: True)
        assert (self.pool.bytes, self.pool.counters().entries) == (0, 0)


def values(content: Any) -> list[float]:
    return [number for item in content for number in item.tolist()]


def rooms(content: Any) -> dict[int, int]:
    return {item.untyped_storage().data_ptr(): item.untyped_storage().nbytes() for item in content}


TestPools = Pools.TestCase
TestPools.settings = settings(max_examples=60, stateful_step_count=40)
