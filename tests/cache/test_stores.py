"""Stores: whatever requests do, each reads what it put, and nothing stays when all have let go."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fv_core.cache.stores import ValueStore, value_ref
from fv_core.errors import RunError


def tensor(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


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


@given(st.lists(st.sampled_from(VARIANTS), max_size=6))
def test_store_counts_distinct_values(tensors: list[Tensor]) -> None:
    store = ValueStore()
    refs = {store.put(each, "a") for each in tensors}
    assert len(store) == len(refs)
    for ref in refs:
        store.release(ref, "a")
    assert (len(store), store.bytes) == (0, 0)
