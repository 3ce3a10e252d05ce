"""One request walked node by node: what it keeps between nodes, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fv_core import Engine, OutputSpec, Request
from fv_core.cache import ValueRef
from fv_core.extend.chain import Chain
from fv_core.request import StepDone
from fv_core.runtime import instance
from fv_core.runtime.execution import executor
from fv_core.runtime.job import Job

Ask = Callable[..., Request]


def walked(engine: Engine, request: Request) -> dict[str, set[str]]:
    """The slots that are there once each node is done."""
    job, slots = engine.start(request), {}
    while not job.done:
        node = job.run.current.id
        job.step()
        slots[node] = set(job.run.slots)
    assert job.error is None
    return slots


def test_slots_live_as_long_as_a_later_node_reads_them_or_somebody_asked(engine: Engine, ask: Ask) -> None:
    prompts = {"request.prompt", "request.negative_prompt"}
    slots = walked(engine, ask(output=OutputSpec()))
    assert slots == {
        "encode": {"request.negative_prompt", "cond"},
        "encode_negative": {"cond", "uncond"},
        "denoise": {"latent"},
        "decode": {"video"},
    }
    kept = walked(engine, ask(output=OutputSpec(keep=("cond", "latent"))))
    assert kept["denoise"] == {"cond", "latent"}
    assert kept["decode"] == {"cond", "latent", "video"}
    assert not prompts & kept["decode"]


def test_values_that_many_calls_read_are_stored_once_and_given_back_when_unread(
    engine: Engine, ask: Ask
) -> None:
    job = engine.start(ask(output=OutputSpec(), negative_prompt="grey"))
    held = []
    while not job.done:
        node = job.run.current.id
        job.step()
        counters = engine.counters()
        held.append((node, counters.values, counters.caches))
    assert held == [
        ("encode", 1, 0), ("encode_negative", 2, 0), ("denoise", 2, 0), ("denoise", 0, 0),
        ("decode", 0, 0), ("decode", 0, 1), ("decode", 0, 0),
    ]  # fmt: skip


def test_equal_prompts_of_two_requests_are_one_value(engine: Engine, ask: Ask) -> None:
    jobs = [engine.start(ask(seed=seed, guidance=1.0)) for seed in range(2)]
    for job in jobs:
        job.step()
    assert engine.counters().values == 1
    jobs[0].close()
    assert engine.counters().values == 1
    jobs[1].close()
    assert engine.counters().values == 0


def test_total_steps_count_every_node_that_runs(engine: Engine, ask: Ask) -> None:
    def total(**fields: object) -> int:
        return engine.start(ask(**fields)).run.total_steps()

    assert total(steps=7, frames=9) == 1 + 1 + 7 + (1 + 3)
    assert total(steps=7, frames=9, guidance=1.0) == 1 + 7 + (1 + 3)
    assert total(steps=1, frames=1) == 1 + 1 + 1 + (1 + 1)


def test_slot_is_read_as_a_tensor_stored_by_reference_or_not(engine: Engine, ask: Ask) -> None:
    job: Job = engine.start(ask(output=OutputSpec(keep=("cond", "latent"))))
    while not job.done:
        job.step()
    assert isinstance(job.run.slots["cond"], ValueRef)
    assert job.run.tensor("cond").shape == (512, 32)
    assert isinstance(job.run.slots["latent"], torch.Tensor)
    assert job.run.tensor("latent") is job.run.slots["latent"]


def test_a_note_is_told_once(engine: Engine, ask: Ask) -> None:
    clip = engine.run(ask(prompt="circle " * 600, negative_prompt="circle " * 600))
    assert len(clip.used.adjusted) == 1


@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_an_unused_negative_prompt_is_told_and_not_encoded(guidance: float, engine: Engine, ask: Ask) -> None:
    clip = engine.run(ask(guidance=guidance, negative_prompt="grey"))
    assert bool(clip.used.adjusted) is (guidance == 1.0)
    assert ("encode_negative" in walked(engine, ask(guidance=guidance))) is (guidance > 1.0)


@pytest.mark.parametrize(("slot", "ends"), [("cond", "FV502"), ("uncond", None)])
def test_only_a_read_that_the_node_calls_optional_may_be_absent(
    slot: str, ends: str | None, engine: Engine, ask: Ask
) -> None:
    job = engine.start(ask())
    while job.run.current.id != "denoise":
        job.step()
    del job.run.slots[slot]
    while not job.done:
        job.step()
    assert (None if job.error is None else job.error.code) == ends
    job.close()


def test_interceptor_states_end_with_their_node(engine: Engine, ask: Ask) -> None:
    job = engine.start(ask())
    chains: list[Chain] = []
    while not job.done:
        if not chains or chains[-1] is not job.run.chain:
            chains.append(job.run.chain)
            job.run.chain.states["a/b", "cond"] = object()
        job.step()
        if job.run.done or job.run.chain is chains[-1]:
            continue
        assert job.run.chain.states == {}
    assert len(chains) == len(job.run.nodes)


def test_seconds_of_a_step_leave_out_loading(
    engine: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    load = instance.ModelInstance._load

    def slow_load(self: instance.ModelInstance, component_id: str) -> Any:
        component = load(self, component_id)
        now[0] += 100.0
        return component

    def tick() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(instance.ModelInstance, "_load", slow_load)
    monkeypatch.setattr(instance, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(executor, "time", SimpleNamespace(perf_counter=tick))
    seen: list[object] = []
    engine.run(ask(numerics="reference"), observer=seen.append)
    steps = [event for event in seen if isinstance(event, StepDone)]
    ticks = [4.0 if event.node == "denoise" else 2.0 for event in steps]
    assert [event.seconds for event in steps] == ticks  # each call takes one to prepare and one to compute
    left = [tick * (event.total - event.step) for tick, event in zip(ticks, steps, strict=True)]
    assert [event.eta_s for event in steps] == left  # by the steps of the node itself
    assert engine.instance("wan21/micro").loading_s == 300.0


def test_seconds_of_a_request_are_those_of_its_own_calls(
    engine: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    apart = {"numerics": "reference"}  # each call by itself
    engine.run(ask(**apart))  # what is loaded by a real clock would be taken off this one
    monkeypatch.setattr(executor, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    forward = executor._forward

    def slow(units: Any) -> None:
        forward(units)
        now[0] += 10.0 if units[0][0].task.work.plan.total == 7 else 1.0

    monkeypatch.setattr(executor, "_forward", slow)
    alone = engine.run(ask(steps=7, **apart)).used.seconds
    long, short = engine.run_many([ask(steps=7, **apart), ask(steps=2, **apart)])
    assert long.clip is not None
    assert short.clip is not None
    assert long.clip.used.seconds == alone
    assert short.clip.used.seconds < 20 < alone


def test_a_shared_forward_is_shared_in_seconds_too(
    engine: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    engine.run(ask())  # what is loaded by a real clock would be taken off this one
    monkeypatch.setattr(executor, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    forward = executor._forward

    def slow(calls: Any) -> None:
        forward(calls)
        now[0] += 1.0

    monkeypatch.setattr(executor, "_forward", slow)
    results = engine.run_many(
        [ask(seed=1), ask(seed=2, prompt="a blue square", negative_prompt="grey")], numerics="fast"
    )
    seconds = [one.clip.used.seconds for one in results if one.clip is not None]
    assert seconds == [now[0] / 2] * 2
