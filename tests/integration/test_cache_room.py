"""Room in pools is reserved before a request begins: who does not fit now waits, who never fits is refused, and what
cards state covers what their requests take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core import AsyncEngine, Engine, FvError, Request, derive
from fv_core.cache.pool import Entry, Pool
from fv_core.cache.ref import CacheContent
from fv_core.media import Clip
from fv_core.memory import Budget, Ticket
from fv_core.plugins import find_card
from fv_core.program import InputSpec
from fv_core.request import EVERYTHING, Modality, ModalPart, OutputSpec, RequestEvent, Size, Started, TaskType
from fv_core.runtime.records.samples import sample

MODELS = ("bagel/tiny", "cosmos3/tiny", "ltx2/tiny", "wan-causal/tiny", "wan21/micro")
ALL = OutputSpec(keep=(EVERYTHING,))


def given(modality: Modality, side: int = 32, frames: int = 5) -> tuple[ModalPart, ...]:
    return (sample(InputSpec(modality=modality), Size(side, side), frames),)


PICTURE, CLIP = given(Modality.IMAGE), given(Modality.VIDEO)
THINKS = {"think": True, "max_tokens": 4}
KINDS: dict[str, Request] = {
    "wan21, a frame": Request(model="wan21/micro", prompt="a", size=(32, 16), frames=1, steps=1),
    "wan21": Request(model="wan21/micro", prompt="a cat", size=(32, 16), frames=9, steps=1),
    "wan-causal": Request(model="wan-causal/tiny", prompt="a cat", size=(32, 16), frames=9),
    "wan-causal, beyond its window": Request(model="wan-causal/tiny", prompt="a cat", size=(16, 16), frames=45),
    "wan-causal, from an image": Request(
        model="wan-causal/tiny", task=TaskType.I2V, prompt="a cat", size=(32, 32), frames=9, inputs=PICTURE
    ),
    "bagel": Request(model="bagel/tiny", prompt="a cat", size=(32, 48), steps=1),
    "bagel, thinks first": Request(model="bagel/tiny", prompt="a cat", size=(32, 32), steps=1, params=THINKS),
    "bagel, an edit": Request(
        model="bagel/tiny", task=TaskType.EDIT, prompt="a red circle over the sea", steps=1, params=THINKS,
        inputs=given(Modality.IMAGE, 64),
    ),
    "bagel, a question": Request(
        model="bagel/tiny", task=TaskType.QA, prompt="what?", params=THINKS, inputs=given(Modality.IMAGE, 16)
    ),
    "cosmos3, thinks first": Request(
        model="cosmos3/tiny", prompt="a cat", size=(32, 32), frames=9, steps=1, params=THINKS, negative_prompt="fog"
    ),
    "cosmos3, a frame": Request(model="cosmos3/tiny", task=TaskType.T2I, prompt="a", size=(32, 32), steps=1),
    "cosmos3, a question": Request(
        model="cosmos3/tiny", task=TaskType.QA, prompt="what?", params={"max_tokens": 4}
    ),
    "cosmos3, from a video": Request(
        model="cosmos3/tiny", task=TaskType.V2V, prompt="a cat", size=(32, 32), frames=9, steps=1, inputs=CLIP
    ),
    "cosmos3, acts": Request(
        model="cosmos3/tiny", task=TaskType.POLICY, prompt="lift it", frames=5, steps=1,
        inputs=given(Modality.IMAGE, 64),
    ),
    "ltx2": Request(model="ltx2/tiny", prompt="a cat", frames=9),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def roomy(one_thread: None) -> Iterator[Engine]:
    with Engine(MODELS, device="cpu") as engine:
        yield engine


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The most that was held at any time, by pool."""
    found: dict[str, int] = {}
    put = Pool.put

    def watched(self: Pool, content: CacheContent, key: object = None) -> Entry:
        entry = put(self, content, key)  # type: ignore[arg-type]
        found[self.name] = max(found.get(self.name, 0), self.held_bytes)
        return entry

    monkeypatch.setattr(Pool, "put", watched)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_card_states_covers_what_a_request_takes(
    kind: str, roomy: Engine, peaks: dict[str, int]
) -> None:
    request = KINDS[kind]
    stated = roomy.plan(request).caches
    roomy.run(request)
    taken = {name: most for name, most in peaks.items() if name != "feature" and most}
    assert taken.keys() <= stated.keys()
    for name, most in taken.items():
        assert most <= stated[name] <= 4 * most, name
    if str(request.model).startswith("wan"):  # whose every size follows from the request
        assert all(stated[name] - most <= 3 or request.frames == 1 for name, most in taken.items())


PAIRS: dict[str, tuple[str, tuple[Request, ...]]] = {
    "wan-causal, windows": (
        "slab_kv",
        tuple(
            Request(model="wan-causal/tiny", prompt="a cat", seed=seed, size=(16, 16), frames=21, output=ALL)
            for seed in (1, 2)
        ),
    ),
    "wan-causal, decoders": (
        "stream",
        tuple(
            Request(model="wan-causal/tiny", prompt=prompt, seed=3, size=(16, 16), frames=9, output=ALL)
            for prompt in ("a cat", "a red circle")
        ),
    ),
    "bagel, contexts": (
        "paged_kv",
        tuple(
            Request(
                model="bagel/tiny", prompt=prompt, seed=4, size=(32, 32), steps=2, params=THINKS, output=ALL
            )
            for prompt in ("a cat", "a dog!")
        ),
    ),
    "bagel, edit and question": (
        "paged_kv",
        (
            replace(KINDS["bagel, an edit"], seed=5, output=ALL),
            replace(KINDS["bagel, a question"], seed=6, output=ALL),
        ),
    ),
}
"""Two requests, and the class of caches in which they fit alone but not together."""


def bounded(engine: Engine, pool: str, pair: Sequence[Request]) -> dict[str, int]:
    """A budget with room for the larger of two, and not for both."""
    needs = [engine.plan(request).caches[pool] for request in pair]
    return {pool: sum(needs) - 1}


def same(one: Clip, other: Clip) -> bool:
    return one.text == other.text and all(
        torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items()
    )


@pytest.mark.parametrize("name", PAIRS)
def test_of_two_that_fit_alone_the_second_waits_and_both_equal_their_solo_runs(
    name: str, roomy: Engine, peaks: dict[str, int]
) -> None:
    pool, pair = PAIRS[name]
    alone = [roomy.run(request) for request in pair]
    budgets = bounded(roomy, pool, pair)
    told: list[RequestEvent] = []
    peaks.clear()
    with Engine(MODELS, device="cpu", cache_bytes=budgets) as engine:
        before = engine.counters()
        results = engine.run_many(pair, observer=told.append)
        assert [result.error for result in results] == [None, None]
        assert all(
            result.clip is not None and same(result.clip, clip)
            for result, clip in zip(results, alone, strict=True)
        )
        assert engine.counters() == before
    assert peaks[pool] <= budgets[pool]
    first, second = dict.fromkeys(event.request_id for event in told)
    begun = next(index for index, event in enumerate(told) if event.request_id == second)
    assert all(event.request_id == second for event in told[begun:]), (
        "the second began before the first ended"
    )
    assert isinstance(told[begun], Started)
    assert first != second


@pytest.mark.parametrize("name", PAIRS)
def test_so_do_two_jobs_of_the_asynchronous_engine(
    name: str, roomy: Engine, peaks: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, pair = PAIRS[name]
    alone = [roomy.run(request) for request in pair]
    budgets = bounded(roomy, pool, pair)
    promised: list[int] = []
    reserve = Budget.reserve

    def watched(self: Budget, *args: Any, **options: Any) -> Ticket:
        ticket = reserve(self, *args, **options)
        promised.extend([self.reserved()] if self.place == f"of {pool} caches" else [])
        return ticket

    monkeypatch.setattr(Budget, "reserve", watched)
    peaks.clear()

    async def clips() -> list[Clip]:
        async with AsyncEngine(MODELS, device="cpu", cache_bytes=budgets) as engine:
            before = await engine.counters()
            jobs = [await engine.submit(request) for request in pair]
            made = [await job.result() for job in jobs]
            assert await engine.counters() == before
            return made

    assert all(same(one, other) for one, other in zip(asyncio.run(clips()), alone, strict=True))
    assert len(promised) >= 2
    assert max(promised) <= budgets[pool]
    assert peaks[pool] <= budgets[pool]


@pytest.mark.parametrize("name", PAIRS)
def test_one_that_never_fits_is_refused_before_anything_is_loaded_with_bytes_needed_and_available(
    name: str, roomy: Engine
) -> None:
    pool, (request, *_) = PAIRS[name]
    needed = roomy.plan(request).caches[pool]
    with Engine(MODELS, device="cpu", cache_bytes={pool: needed - 1}) as engine:
        for refused in (engine.start, engine.accept):
            with pytest.raises(FvError) as caught:
                refused(request)
            assert caught.value.code == "FV404"
            assert f"needs {needed} bytes" in caught.value.message
            assert f"of {pool} caches, where {needed - 1} bytes" in caught.value.message
        assert engine.instance(str(request.model)).loaded == ()
        assert engine.counters().requests == engine.counters().reserved_cache_bytes == 0


def test_room_is_promised_once_to_each_open_request_and_given_back_with_it(roomy: Engine) -> None:
    requests = [KINDS["wan-causal"], KINDS["bagel, thinks first"]]
    needs = [sum(roomy.plan(request).caches.values()) for request in requests]

    def promised() -> int:
        return roomy.counters().reserved_cache_bytes

    jobs = [roomy.start(request) for request in requests]
    assert promised() == sum(needs)
    for job in jobs:
        job.step()
    assert promised() == sum(needs)
    taken = roomy.snapshot(jobs[0])
    jobs[0].close()
    assert promised() == needs[1]
    jobs[0] = roomy.resume(taken)
    assert promised() == sum(needs)
    for job in jobs:
        job.close()
    assert promised() == 0


def test_who_finds_room_in_pools_but_no_memory_gives_the_room_back(
    roomy: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fv_core.runtime.residency.free_bytes", lambda device: -(2**60))
    with pytest.raises(FvError) as caught:
        roomy.start(KINDS["wan-causal"])
    assert caught.value.code == "FV401"
    assert roomy.counters().reserved_cache_bytes == 0


def test_who_finds_room_in_one_pool_and_not_in_another_gives_the_first_back(roomy: Engine) -> None:
    needs = roomy.plan(KINDS["wan-causal"]).caches
    *_, last = needs
    with Engine(MODELS, device="cpu", cache_bytes={last: needs[last]}) as engine:
        job = engine.start(KINDS["wan-causal"])
        with pytest.raises(FvError) as caught:
            engine.start(KINDS["wan-causal"])
        assert caught.value.code == "FV405"
        assert f"of {last} caches" in caught.value.message
        assert engine.counters().reserved_cache_bytes == sum(needs.values())
        job.close()
        assert engine.counters().reserved_cache_bytes == 0


def test_a_card_that_states_nothing_reserves_nothing() -> None:
    with Engine([derive(find_card("wan21/micro"), caches="")], device="cpu") as engine:
        job = engine.start(Request(prompt="a cat", size=(16, 16), frames=5, steps=1))
        assert engine.counters().reserved_cache_bytes == 0
        job.close()
