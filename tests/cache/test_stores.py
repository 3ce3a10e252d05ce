"""Stores: whatever requests do, each reads what it put, and nothing stays when all have let go."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fv_core.cache import CacheContent, CacheRef
from fv_core.cache.stores import CachePool, ValueStore, value_ref
from fv_core.errors import RunError

EMPTY = CacheRef(pool="stream", id="r1/decode/features", version=0, owner="r1")


def tensor(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def same(content: CacheContent, other: CacheContent) -> bool:
    pairs = zip(content, other, strict=True)
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b for a, b in pairs
    )


VARIANTS = [
    torch.zeros(4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.bfloat16),
    torch.zeros(4, dtype=torch.int32), torch.ones(4), torch.tensor(0.0), torch.zeros(0), torch.zeros(0, 3),
    torch.zeros(4, dtype=torch.bool), -torch.zeros(4),
]  # fmt: skip


def test_reference_of_a_value_depends_on_bits_shape_and_dtype_alone() -> None:
    assert len({value_ref(variant).hash for variant in VARIANTS}) == len(VARIANTS)
    assert [value_ref(variant.clone()) for variant in VARIANTS] == [
        value_ref(variant) for variant in VARIANTS
    ]
    matrix = torch.arange(6.0).view(2, 3)
    assert value_ref(matrix.t()) == value_ref(matrix.t().contiguous())


def test_equal_values_are_stored_once_until_the_last_holder_lets_go() -> None:
    store = ValueStore()
    first, second = tensor(1, 2), tensor(1, 2)
    ref = store.put(first, "a")
    assert store.put(second, "b") == ref
    assert store.get(ref) is first
    assert (len(store), store.bytes) == (1, 8)
    store.release(ref, "a")
    store.release(ref, "a")
    assert store.get(ref) is first
    store.release(ref, "b")
    assert (len(store), store.bytes) == (0, 0)
    with pytest.raises(RunError) as caught:
        store.get(ref)
    assert caught.value.code == "FV505"


def test_version_zero_is_empty_and_is_always_there() -> None:
    pool = CachePool()
    assert pool.read(EMPTY) == pool.take(EMPTY) == []


@pytest.mark.parametrize("use", ["read", "take"])
def test_stale_reference_is_refused(use: str) -> None:
    pool = CachePool()
    first = pool.append(EMPTY, [tensor(1)])
    second = pool.append(first, pool.take(first))
    assert (first.version, second.version) == (1, 2)
    for stale in (first, CacheRef(pool="stream", id=EMPTY.id, version=3, owner="r1")):
        with pytest.raises(RunError) as caught:
            getattr(pool, use)(stale)
        assert caught.value.code == "FV505"


@pytest.mark.parametrize("use", ["read", "take"])
def test_changing_the_list_of_a_read_does_not_change_the_pool(use: str) -> None:
    pool = CachePool()
    given: CacheContent = [tensor(1), "Rep", None]
    ref = pool.append(EMPTY, given)
    content = pool.read(ref)
    content.clear()
    assert same(pool.read(ref), [tensor(1), "Rep", None])
    assert pool.bytes == 4
    assert same(getattr(pool, use)(ref), [tensor(1), "Rep", None])


def test_a_released_cache_gives_its_bytes_back() -> None:
    pool = CachePool()
    ref = pool.append(EMPTY, [torch.zeros(10), "Rep", None, torch.zeros(2, dtype=torch.float64)])
    assert (len(pool), pool.bytes) == (1, 56)
    pool.release(ref)
    pool.release(ref)
    assert (len(pool), pool.bytes) == (0, 0)


@given(st.lists(st.sampled_from(VARIANTS), max_size=6))
def test_store_counts_distinct_values(tensors: list[Tensor]) -> None:
    store = ValueStore()
    refs = {store.put(each, "a") for each in tensors}
    assert len(store) == len(refs)
    for ref in refs:
        store.release(ref, "a")
    assert (len(store), store.bytes) == (0, 0)
