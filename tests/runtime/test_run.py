"""One request walked node by node: what it keeps between nodes, and what it tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fv_core import Engine, OutputSpec, Request
from fv_core.cache import ValueRef
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
