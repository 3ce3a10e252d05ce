"""Anything that can happen to the memory of an engine, in any order: bytes stay within the budget, clips what they are.

Two models, adapters, requests in flight, sleep, wake, unloading, told and untold changes; the budget is exactly what
the hungriest request is predicted to take.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fv_core import Adapter, Engine, ModelCard, Request, derive
from fv_core.card import AdapterNames
from fv_core.errors import ResourceError
from fv_core.memory import Tag
from fv_core.runtime.job import Job
from fv_core.testing.adapters import factors, write_adapter
from fv_core.testing.tiny import CARD, DenoiserModule

FOLDER = Path(tempfile.mkdtemp())


def adaptable(model: str) -> ModelCard:
    denoiser = replace(CARD.components["denoiser"], adapters=AdapterNames())
    return derive(CARD, model_id=model, components={**CARD.components, "denoiser": denoiser})


MODELS = ("testing/one", "testing/other")
CARDS = [adaptable(model) for model in MODELS]
PATHS = [
    str(
        write_adapter(
            FOLDER / f"{seed}.safetensors", factors(DenoiserModule(), seed=seed, rank=64), prefix=""
        )
    )
    for seed in (1, 2)
]
STACKS = [(), (0,), (1,), (0, 1)]


def ask(model: str, stack: tuple[int, ...]) -> Request:
    return Request(
        prompt="a red circle",
        model=model,
        seed=1,
        size=(16, 16),
        frames=1,
        steps=2,
        adapters=tuple(Adapter(path=PATHS[number]) for number in stack),
    )


def scale(engine: Engine, model: str, times: int) -> None:
    """Changes the weights of a denoiser as an optimizer would."""
    module: Any = engine.instance(model).component("denoiser").module
    with torch.no_grad():
        for _ in range(times):
            module.conv.weight.mul_(2.0)  # exactly, in any order


@functools.cache
def expected(stack: tuple[int, ...], changes: int) -> Any:
    """Frames from an engine with all the memory there is."""
    with Engine(CARDS, device="cpu", reuse=False) as roomy:
        scale(roomy, MODELS[0], changes)
        return roomy.run(ask(MODELS[0], stack)).frames.tolist()


@functools.cache
def largest() -> int:
    with Engine(CARDS, device="cpu") as engine:
        return max(engine.plan(ask(MODELS[0], stack)).peak_bytes for stack in STACKS)


models, stacks = st.sampled_from(MODELS), st.sampled_from(STACKS)


class Memory(RuleBasedStateMachine):
    """`changes`: how often the weights of each model have been changed and not given up."""

    times: ClassVar[int] = 1

    @initialize(reuse=st.booleans())
    def begin(self, reuse: bool) -> None:
        torch.set_num_threads(1)
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("FV_HOME", str(FOLDER))
        self.limit = self.times * largest() - (self.times - 1)
        self.engine = Engine(CARDS, device="cpu", memory=self.limit, reuse=reuse)
        self.changes = dict.fromkeys(MODELS, 0)
        self.job: tuple[Job, str, tuple[int, ...]] | None = None

    def in_use(self, model: str) -> bool:
        return self.job is not None and self.job[1] == model

    @contextmanager
    def refused_if(self, refused: bool, codes: str) -> Iterator[None]:
        if not refused:
            yield
            return
        with pytest.raises(ResourceError, match=codes):
            yield

    @rule(model=models, stack=stacks)
    def run(self, model: str, stack: tuple[int, ...]) -> None:
        (result,) = self.engine.run_many([ask(model, stack)])
        if self.job is not None and result.error is not None:
            assert result.error.code == "FV405" and f"for {self.job[0].run.id} now" in result.error.message
            return
        assert result.clip is not None, result.error
        assert result.clip.frames.tolist() == expected(stack, self.changes[model])

    @precondition(lambda self: self.job is None)
    @rule(model=models, stack=stacks, steps=st.integers(0, 3))
    def start(self, model: str, stack: tuple[int, ...], steps: int) -> None:
        job = self.engine.start(ask(model, stack))
        for _ in range(steps):
            job.step()
        self.job = job, model, stack

    @precondition(lambda self: self.job is not None)
    @rule(finish=st.booleans())
    def end(self, finish: bool) -> None:
        assert self.job is not None
        job, model, stack = self.job
        while finish and not job.done:
            job.step()
        if finish:
            assert self.engine.clip(job).frames.tolist() == expected(stack, self.changes[model])
        job.close()
        self.job = None

    @rule(model=models, part=st.sampled_from([(), ("denoiser",), ("text", "vae")]))
    def sleep(self, model: str, part: tuple[str, ...]) -> None:
        with self.refused_if(self.in_use(model), "FV407"):
            self.engine.sleep(model, *part)

    @rule(model=models)
    def wake(self, model: str) -> None:
        with suppress(ResourceError) if self.job is not None else nullcontext():
            self.engine.wake(model)

    @rule(model=models, discard=st.booleans())
    def unload(self, model: str, discard: bool) -> None:
        used, changed = self.in_use(model), self.changes[model] > 0
        with self.refused_if(used or (changed and not discard), "FV407" if used else "FV408 denoiser of"):
            self.engine.unload(model, discard=discard)
            self.changes[model] = 0

    @rule(model=models, told=st.booleans())
    def change(self, model: str, told: bool) -> None:
        if (
            self.in_use(model)
            or self.changes[model] == 2
            or "denoiser" not in self.engine.instance(model).loaded
        ):
            return
        scale(self.engine, model, 1)
        self.changes[model] += 1
        if told:
            self.engine.instance(model).weights_changed("denoiser")

    @invariant()
    def what_is_there_is_reserved_and_fits(self) -> None:
        budget, adapters = self.engine._residency.budget, self.engine._adapters
        resident = sum(self.engine.instance(model).resident_bytes() for model in MODELS)
        assert resident + adapters.bytes <= self.limit
        assert budget.reserved() <= self.limit
        assert resident <= budget.reserved(Tag.WEIGHTS)
        if self.job is None:
            counters = self.engine.counters()
            assert (counters.requests, counters.reserved_bytes, counters.value_bytes) == (0, 0, 0)

    def teardown(self) -> None:
        if self.job is not None:
            self.job[0].close()
        self.engine.close()
        assert not any((FOLDER / "asleep").glob("*"))
        self.patch.undo()


class Roomier(Memory):
    """A byte less than two of the hungriest take."""

    times = 2


TestMemory = Memory.TestCase
TestMemory.settings = settings(max_examples=30, stateful_step_count=15)
TestRoomier = Roomier.TestCase
TestRoomier.settings = settings(max_examples=15, stateful_step_count=15)


@pytest.mark.parametrize("stack", STACKS)
def test_one_byte_decides(stack: tuple[int, ...]) -> None:
    with Engine(CARDS, device="cpu") as engine:
        peak = engine.plan(ask(MODELS[0], stack)).peak_bytes
    with Engine(CARDS, device="cpu", memory=peak) as engine:
        for model in (*MODELS, *MODELS):
            assert engine.run(ask(model, stack)).frames.tolist() == expected(stack, 0)
    with Engine(CARDS, device="cpu", memory=peak - 1) as engine, pytest.raises(ResourceError, match="FV401"):
        engine.run(ask(MODELS[0], stack))
