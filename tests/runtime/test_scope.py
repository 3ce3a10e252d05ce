"""Request scopes: whatever requests do, each reads what it put, and nothing stays when all are closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from torch import Tensor

from fv_core.cache import CacheContent, CacheRef, ValueRef
from fv_core.cache.pool import POOLS
from fv_core.errors import RunError
from fv_core.runtime.scope import RequestScope
from fv_core.runtime.stores import Counters, Stores

EMPTY = CacheRef(pool="stream", id="r1/decode/features", version=0, owner="r1")
BUDGETS = dict.fromkeys(POOLS, 2**20)
NOTHING = Counters(requests=0, values=0, value_bytes=0, caches=0, cache_bytes=0)


def tensor(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def same(content: CacheContent, other: CacheContent) -> bool:
    pairs = zip(content, other, strict=True)
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b for a, b in pairs
    )


def test_two_scopes_with_one_owner_name_do_not_touch_each_other() -> None:
    """As when a snapshot is resumed while the job it was taken of goes on."""
    stores = Stores(BUDGETS)
    one, other = RequestScope("r1", stores), RequestScope("r1", stores)
    value = one.put(tensor(1))
    assert other.put(tensor(1)) == value
    mine, theirs = one.append(EMPTY, [tensor(1)]), other.append(EMPTY, [tensor(2)])
    assert mine == theirs
    one.close()
    assert torch.equal(other.get(value), tensor(1))
    assert same(other.read(theirs), [tensor(2)])
    other.close()
    assert stores.counters() == NOTHING


class Requests(RuleBasedStateMachine):
    """Requests that put, append, keep and close in any order, beside a model of what each must see."""

    scopes = Bundle("scopes")
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.stores = Stores(BUDGETS)
        self.model: dict[RequestScope, dict[ValueRef | CacheRef, CacheContent]] = {}
        self.names = 0

    @rule(target=scopes)
    def open(self) -> RequestScope:
        scope = RequestScope("r1", self.stores)
        self.model[scope] = {}
        return scope

    @rule(target=held, scope=scopes, number=st.integers(0, 2))
    def put(self, scope: RequestScope, number: int) -> object:
        if scope not in self.model:
            return multiple()
        ref = scope.put(tensor(number))
        self.model[scope][ref] = [tensor(number)]
        return scope, ref

    @rule(target=held, scope=scopes, number=st.integers(0, 2))
    def begin(self, scope: RequestScope, number: int) -> object:
        if scope not in self.model:
            return multiple()
        self.names += 1
        empty = CacheRef(pool="stream", id=f"c{self.names}", version=0, owner="r1")
        ref = scope.append(empty, [tensor(number), None])
        self.model[scope][ref] = [tensor(number), None]
        return scope, ref

    @rule(target=held, one=consumes(held), number=st.integers(0, 2))
    def append(self, one: tuple[RequestScope, ValueRef | CacheRef], number: int) -> object:
        scope, ref = one
        if isinstance(ref, ValueRef) or ref not in self.model.get(scope, {}):
            return multiple()
        content = [*scope.take(ref), tensor(number)]
        following = scope.append(ref, content)
        del self.model[scope][ref]
        self.model[scope][following] = content
        return scope, following

    @rule(scope=scopes, data=st.data())
    def keep(self, scope: RequestScope, data: st.DataObject) -> None:
        refs = list(self.model.get(scope, {}))
        kept = frozenset(data.draw(st.lists(st.sampled_from(refs), unique=True))) if refs else frozenset()
        scope.keep(kept)
        if scope in self.model:
            self.model[scope] = {ref: self.model[scope][ref] for ref in refs if ref in kept}

    @rule(scope=scopes)
    def close(self, scope: RequestScope) -> None:
        scope.close()
        self.model.pop(scope, None)

    @invariant()
    def each_reads_what_it_put(self) -> None:
        for scope, held in self.model.items():
            for ref, content in held.items():
                found: CacheContent = [scope.get(ref)] if isinstance(ref, ValueRef) else [*scope.read(ref)]
                assert same(found, content)

    @invariant()
    def counters_count_what_is_held(self) -> None:
        refs = [ref for held in self.model.values() for ref in held]
        values = {ref for ref in refs if isinstance(ref, ValueRef)}
        contents = [
            content for held in self.model.values() for ref, content in held.items() if ref not in values
        ]
        assert self.stores.counters() == Counters(
            requests=len(self.model),
            values=len(values),
            value_bytes=4 * len(values),
            caches=len(contents),
            cache_bytes=sum(map(_bytes, contents)),
        )

    def teardown(self) -> None:
        for scope in list(self.model):
            scope.close()
        assert self.stores.counters() == NOTHING


def _bytes(content: Iterable[object]) -> int:
    return sum(item.numel() * item.element_size() for item in content if isinstance(item, Tensor))


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=40, stateful_step_count=30)


def test_version_zero_is_empty_and_is_always_there() -> None:
    scope = RequestScope("r1", Stores(BUDGETS))
    assert scope.read(EMPTY) == scope.take(EMPTY) == []


@pytest.mark.parametrize("use", ["read", "take"])
def test_stale_reference_is_refused(use: str) -> None:
    scope = RequestScope("r1", Stores(BUDGETS))
    first = scope.append(EMPTY, [tensor(1)])
    second = scope.append(first, scope.take(first))
    assert (first.version, second.version) == (1, 2)
    for stale in (first, replace(EMPTY, version=3)):
        with pytest.raises(RunError) as caught:
            getattr(scope, use)(stale)
        assert caught.value.code == "FV505"


@pytest.mark.parametrize("use", ["read", "take"])
def test_changing_the_list_of_a_read_does_not_change_the_cache(use: str) -> None:
    scope = RequestScope("r1", Stores(BUDGETS))
    ref = scope.append(EMPTY, [tensor(1), "Rep", None])
    content = scope.read(ref)
    content.clear()
    assert same(getattr(scope, use)(ref), [tensor(1), "Rep", None])


@pytest.mark.parametrize("delta", [{"owner": "r2"}, {"pool": "slab"}])
def test_reference_of_another_request_or_pool_is_refused(delta: dict[str, Any]) -> None:
    stores = Stores(BUDGETS)
    scope = RequestScope("r1", stores)
    ref = scope.append(EMPTY, [tensor(1)])
    other = replace(ref, **delta)
    uses: list[Callable[[], object]] = [
        lambda: scope.read(other),
        lambda: scope.take(other),
        lambda: scope.append(other, []),
        lambda: scope.restore(other, []),
    ]
    for use in uses:
        with pytest.raises(RunError) as caught:
            use()
        assert caught.value.code == "FV505"
    assert same(scope.read(ref), [tensor(1)])
    scope.close()
    assert stores.counters() == NOTHING
