"""Requests that start, step, rest, fail, are cancelled and close in any order: pools keep their budgets and counts, and
who comes to the end has the bits that it has alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fv_core import CancelScope, Engine, FvError, Request
from fv_core.cache.pool import CACHES, Entry
from fv_core.media import Clip
from fv_core.request import EVERYTHING, OutputSpec
from fv_core.runtime.gain import Always
from fv_core.runtime.job import Job, advance
from fv_core.runtime.snapshots.snapshot import RequestSnapshot

MODELS = ("wan-causal/tiny", "bagel/tiny")
ALL = OutputSpec(keep=(EVERYTHING,))
THINKS = {"think": True, "max_tokens": 2}
KINDS = {
    "window": Request(model=MODELS[0], prompt="a cat", seed=1, size=(16, 16), frames=21, output=ALL),
    "decoder": Request(model=MODELS[0], prompt="a cat", seed=2, size=(32, 16), frames=9, output=ALL),
    "contexts": Request(
        model=MODELS[1], prompt="a cat", seed=3, size=(16, 16), steps=1, params=THINKS, output=ALL
    ),
    "image": Request(model=MODELS[1], prompt="a dog", seed=4, size=(16, 16), steps=2, output=ALL),
}
NEVER = Request(model=MODELS[0], prompt="a cat", size=(64, 64), frames=45)
"""One that no pool has room for."""


class Fault:
    """What becomes of the next forward; used up by it."""

    now = ""

    def put_on(self, engine: Engine) -> None:
        for model in MODELS:
            instance = engine.instance(model)
            for name in instance.card.components:
                part: Any = instance.component(name)
                part.forward_batch = self._around(part.forward_batch)

    def _around(self, forward: Any) -> Any:
        def faulty(op: str, calls: Sequence[Any]) -> Any:
            fault, self.now = self.now, ""
            if fault == "raises":
                raise ArithmeticError("made to fail")
            outputs = forward(op, calls)
            if fault == "not finite":
                return [
                    replace(one, output=replace(one.output, tensors={
                        name: tensor * torch.nan if tensor.is_floating_point() else tensor
                        for name, tensor in one.output.tensors.items()
                    })) for one in outputs
                ]  # fmt: skip
            return outputs

        return faulty


FAULT = Fault()


@pytest.fixture(scope="module")
def solo() -> Iterator[tuple[Engine, dict[str, Clip]]]:
    """An engine with room for two or three of these at a time, and what each comes to alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Engine(MODELS, device="cpu") as alone:
        clips = {kind: alone.run(request) for kind, request in KINDS.items()}
        needs = [alone.plan(request).caches for request in KINDS.values()]
    budgets = {name: 2 * max(one.get(name, 0) for one in needs) for name in CACHES}
    with Engine(MODELS, device="cpu", gain=Always(), cache_bytes=budgets) as engine:
        FAULT.put_on(engine)
        yield engine, clips
    torch.set_num_threads(threads)


class Requests(RuleBasedStateMachine):
    """`open` are jobs on their way with their kind and how to cancel them, `resting` those that made room."""

    engine: Engine
    clips: dict[str, Clip]

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, Job, CancelScope]] = []
        self.resting: list[tuple[str, RequestSnapshot]] = []
        FAULT.now = ""

    @rule(kind=st.sampled_from(sorted(KINDS)))
    def start(self, kind: str) -> None:
        cancel = CancelScope()
        needs = self.engine.plan(KINDS[kind]).caches
        try:
            self.open.append((kind, self.engine.start(KINDS[kind], cancel=cancel), cancel))
        except FvError as error:
            refusal = error.code
        else:
            return
        assert refusal == "FV405"
        assert any(need > self.free(name) for name, need in needs.items()), "refused what would have fitted"

    @rule()
    def start_what_never_fits(self) -> None:
        with pytest.raises(FvError) as caught:
            self.engine.start(NEVER)
        assert caught.value.code == "FV404"

    @precondition(lambda self: self.open)
    @rule(times=st.integers(1, 6), fault=st.sampled_from(["", "", "", "raises", "not finite"]))
    def step_all(self, times: int, fault: str) -> None:
        FAULT.now = fault
        for _ in range(times):
            advance([job for _, job, _ in self.open if not job.done])
        self.settle()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        _, job, cancel = data.draw(st.sampled_from(self.open))
        cancel.cancel()
        job.step()
        assert job.error is not None
        self.settle()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def rest(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.open))
        with suppress(FvError):  # what it came to is not finite
            self.resting.append((one[0], self.engine.snapshot(one[1])))
        one[1].close()
        self.open.remove(one)

    @precondition(lambda self: self.resting)
    @rule()
    def go_on(self) -> None:
        (kind, taken), cancel = self.resting[0], CancelScope()
        try:
            self.open.append((kind, self.engine.resume(taken, cancel=cancel), cancel))
        except FvError as error:
            refusal = error.code
        else:
            self.resting.pop(0)
            return
        assert refusal == "FV405"

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.open))
        one[1].close()
        self.open.remove(one)

    def settle(self) -> None:
        """Compares who is done with its solo run, and lets go of it."""
        for kind, job, _ in [one for one in self.open if one[1].done]:
            if job.error is None:
                clip, alone = self.engine.clip(job), self.clips[kind]
                assert clip.text == alone.text
                assert all(torch.equal(tensor, alone.tensors[name]) for name, tensor in clip.tensors.items())
            job.close()
        self.open = [one for one in self.open if not one[1].done]

    def free(self, name: str) -> int:
        room = self.engine._stores.rooms[name]
        return room.capacity - room.reserved()

    @invariant()
    def what_is_held_is_within_what_was_promised_and_that_within_the_budget(self) -> None:
        plans = [self.engine.plan(KINDS[kind]).caches for kind, _, _ in self.open]
        for name in CACHES:
            pool, room = self.engine._stores.pools[name], self.engine._stores.rooms[name]
            assert pool.held_bytes <= room.reserved() <= pool.budget
            assert pool.bytes <= pool.budget
            assert room.reserved() == sum(plan.get(name, 0) for plan in plans), "promised once to each"

    @invariant()
    def holds_are_those_of_open_requests(self) -> None:
        holders: dict[Entry, int] = {}
        for _, job, _ in self.open:
            for entry in job.run.scope._caches.values():
                holders[entry] = holders.get(entry, 0) + 1
        found = {
            entry: entry.held
            for name in CACHES
            for entry in self.engine._stores.pools[name]._entries
            if entry.held
        }
        assert found == holders

    def teardown(self) -> None:
        for _, job, _ in self.open:
            job.close()
        counters = self.engine.counters()
        assert (counters.requests, counters.values, counters.caches, counters.cache_bytes) == (0, 0, 0, 0)
        assert (counters.reserved_bytes, counters.reserved_cache_bytes) == (0, 0)


def test_pools_keep_their_budgets_and_counts_whatever_becomes_of_requests(
    solo: tuple[Engine, dict[str, Clip]], request: pytest.FixtureRequest
) -> None:
    Requests.engine, Requests.clips = solo
    examples = 60 if request.config.getoption("--soak") else 6
    run_state_machine_as_test(Requests, settings=settings(max_examples=examples, stateful_step_count=14))
