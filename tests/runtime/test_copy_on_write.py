"""A version that somebody else still needs is never changed by who appends to it; one that nobody needs is used up."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Engine, Request
from fv_core.cache import CacheKey, CacheRef
from fv_core.cache.pool import POOLS, Entry, Pool
from fv_core.loop import ComponentOutput, ResolvedCall
from fv_core.media import Clip
from fv_core.request import Numerics
from fv_core.runtime.execution import executor
from fv_core.runtime.scope import RequestScope
from fv_core.runtime.stores import Stores

Ask = Callable[..., Request]
MODEL = "wan21/micro"
KEY = CacheKey(
    model="m", component="text", op="encode", weights="w", version=0, adapters=(), precision="float32", device="cpu",
    environment="e", numerics="exact", static=(), inputs=(), previous=(), part="cache 0",
)  # fmt: skip


def numbers(*values: float) -> Tensor:
    return torch.tensor(values)


def appended(scope: RequestScope, ref: CacheRef, value: float) -> CacheRef:
    """As a component appends: what there was is replaced in the list that it is given, and more is put behind."""
    content = scope.take(ref)
    content[0] = numbers(value)
    content.append(numbers(value))
    return scope.append(ref, content)


def forked() -> list[list[float]]:
    """What two requests read that go on, each in its own way, from a prefix that one of them has made."""
    stores = Stores(dict.fromkeys(POOLS, 2**20))
    scopes = [RequestScope(name, stores) for name in ("r1", "r2")]
    empty = [
        CacheRef(pool="paged_kv", id=f"{scope.owner}/context", version=0, owner=scope.owner)
        for scope in scopes
    ]
    first = scopes[0].append(empty[0], [numbers(1.0)], KEY)
    entry = scopes[1].find(empty[1], KEY)
    assert entry is not None
    refs = [first, scopes[1].adopt(empty[1], entry)]
    refs = [
        appended(scope, ref, 2.0 + number)
        for number, (scope, ref) in enumerate(zip(scopes, refs, strict=True))
    ]
    third = RequestScope("r3", stores)
    again = third.find(replace(empty[0], owner="r3"), KEY)
    assert again is not None, "the prefix is there for whoever comes next"
    found = [scope.read(ref) for scope, ref in zip(scopes, refs, strict=True)]
    return [
        [float(item) for item in content if isinstance(item, Tensor)] for content in (*found, again.content)
    ]


def test_requests_go_on_from_one_prefix_each_in_its_own_way_and_it_stays() -> None:
    assert forked() == [[2.0, 2.0], [3.0, 3.0], [1.0]]


def test_control_a_take_without_copy_breaks_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(pool: Pool, entry: Entry) -> Any:
        if isinstance(entry.content, tuple):
            entry.content = list(entry.content)  # type: ignore[assignment]
        pool.release(entry)
        return entry.content

    monkeypatch.setattr(Pool, "take", take)
    assert forked() != [[2.0, 2.0], [3.0, 3.0], [1.0]]


def decoding(engine: Engine, request: Request) -> Any:
    """A job whose next step appends to a cache that has something in it."""
    job = engine.start(request)
    while job.run.current.id != "decode" or job.run.state is None or not job.run.state.chunks:
        job.step()
    return job


def test_two_jobs_that_resume_one_request_go_on_beside_it(engine: Engine, ask: Ask) -> None:
    expected = engine.run(ask(frames=9)).tensors["video"]
    with closing(decoding(engine, ask(frames=9))) as job:
        taken = engine.snapshot(job)
        jobs = [job, engine.resume(taken), engine.resume(taken)]
        while not all(one.done for one in jobs):
            for one in jobs:
                one.step()
        assert all(torch.equal(engine.clip(one).tensors["video"], expected) for one in jobs)
        for one in jobs:
            one.close()


def test_a_lone_request_never_has_old_and_new_features_side_by_side(
    engine: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = decoding(engine, ask())
    vae = engine.instance(MODEL).component("vae")
    forward, seen = vae.forward_batch, []

    def watched(op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        features = calls[0].caches[0]
        old = next(index for index, item in enumerate(features) if isinstance(item, Tensor))
        item = features[old]
        assert isinstance(item, Tensor)
        gone, features[old] = weakref.ref(item), item.clone()
        del item
        seen.append((gone() is None, engine.counters().pools["stream"].bytes))
        return forward(op, calls)

    monkeypatch.setattr(vae, "forward_batch", watched)
    job.step()
    assert seen == [(True, 0)]
    job.close()


def half_way(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A decoder that changes what it was given and then fails, if it decodes for several at once."""

    def decode(op: str, calls: Sequence[ResolvedCall]) -> Any:
        if op == "decode" and len(calls) > 1:
            for call in calls:
                call.caches[0][:] = [None if item is None else "spoilt" for item in call.caches[0]]
            raise ArithmeticError
        return forward(op, calls)

    return decode


def retried(engine: Engine, ask: Ask, patch: pytest.MonkeyPatch) -> list[Clip | None]:
    vae = engine.instance(MODEL).component("vae")
    patch.setattr(vae, "batch_key", lambda op, call: (op, len(call.caches[0]) if call.caches else 0))
    patch.setattr(vae, "forward_batch", half_way(vae.forward_batch))
    requests = [ask(seed=seed, numerics=Numerics.FAST) for seed in (1, 2)]
    return [result.clip for result in engine.run_many(requests)]


def test_what_a_failed_shared_forward_did_to_its_caches_is_not_seen_by_the_retries(
    engine: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [engine.run(ask(seed=seed, numerics=Numerics.FAST)) for seed in (1, 2)]
    for clip, alone in zip(retried(engine, ask, monkeypatch), expected, strict=True):
        assert clip is not None
        torch.testing.assert_close(clip.tensors["video"], alone.tensors["video"], rtol=0, atol=1e-4)


def test_control_lists_that_are_not_spared_break_the_retry(
    engine: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "spare", lambda unit: unit)
    assert retried(engine, ask, monkeypatch) == [None, None]
