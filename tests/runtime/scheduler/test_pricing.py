"""Requests are priced by what such steps took: by shape, on this machine, alone; learned while they run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fv_core import Engine, Request
from fv_core.request import UsedAdapter
from fv_core.runtime.job import advance
from fv_core.runtime.scheduler.pricing import Pricing, Quote, StepKey

Ask = Callable[..., Request]
MODEL = "wan21/micro"


@pytest.fixture(autouse=True)
def unmeasured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing was ever measured."""
    monkeypatch.setenv("FV_HOME", str(tmp_path))


@pytest.fixture
def key(engine: Engine, ask: Ask) -> Callable[..., StepKey]:
    """The key of the denoising steps of a request; keywords of the request, or adapters of the settled one."""

    def made(adapters: tuple[UsedAdapter, ...] = (), **fields: Any) -> StepKey:
        settled = engine.plan(ask(**fields)).request
        return engine.pricing.quote(engine.instance(MODEL), replace(settled, adapters=adapters)).key(
            "denoise"
        )

    return made


def test_equal_keys_are_steps_that_take_the_same_time_and_may_share_a_forward(
    key: Callable[..., StepKey],
) -> None:
    lora = UsedAdapter(path="a", sha256="0" * 64, scale=1.0)
    assert key() == key(seed=9, prompt="another", steps=7, guidance=8.0)
    others = {
        key(size=(32, 16)), key(frames=9), key(guidance=1.0), key(numerics="fast"), key(adapters=(lora,)),
        key(adapters=(replace(lora, scale=0.5),)), key(adapters=(replace(lora, sha256="1" * 64),)),
    }  # fmt: skip
    assert len(others | {key()}) == 8


def priced(engine: Engine, request: Request) -> Quote:
    return engine.pricing.quote(engine.instance(MODEL), engine.plan(request).request)


def test_what_is_left_shrinks_step_by_step_and_is_unknown_before_anything_was_measured(
    engine: Engine, ask: Ask
) -> None:
    with closing(engine.start(ask(steps=3))) as job:
        seen = []
        while not job.done:
            assert job.run.current.id == "decode" or job.eta is None
            job.step()
            seen.append(job.quote.remaining)
        assert seen[-1] == 0.0
        assert job.eta == 0.0
    with closing(engine.start(ask(steps=3))) as job:
        known = []
        while not job.done:
            assert job.eta is not None
            known.append(job.eta)
            job.step()
        assert min(known) > 0


def test_a_step_of_several_jobs_is_learned_as_such(engine: Engine, ask: Ask) -> None:
    jobs = [engine.start(ask(seed=seed)) for seed in range(3)]
    while not all(job.done for job in jobs):
        advance(jobs)
    key = jobs[0].quote.key("denoise")
    for job in jobs:
        job.close()
    learned = dict(engine.pricing.times.learned())[key]
    assert [(one.rows, one.count) for one in learned.means] == [(3, 2)]


def test_another_shape_is_guessed_from_what_its_node_took(engine: Engine, ask: Ask) -> None:
    small, large = priced(engine, ask()).key("denoise"), priced(engine, ask(size=(32, 32))).key("denoise")
    assert large.work == 4 * small.work
    engine.pricing.observe(small, 1, 2.0)
    assert engine.pricing.times.step_seconds(large, 1) == pytest.approx(8.0)
    assert not engine.pricing.times.knows(large)


def test_who_ends_early_makes_later_ones_cheaper(engine: Engine, ask: Ask) -> None:
    quote = priced(engine, ask(steps=40))
    for name in quote.steps:
        quote.took(name, 1, 1.0)
    before = quote.cost
    for _ in range(60):
        priced(engine, ask(steps=40)).did("denoise", 10, last=True)
    assert before - quote.cost == pytest.approx(30.0, abs=0.1)
    quote.did("denoise", 15, last=False)
    at_least_one = quote.remaining
    quote.did("denoise", 39, last=False)
    assert quote.remaining == at_least_one


def test_what_was_learned_is_written_every_few_seconds(engine: Engine, ask: Ask) -> None:
    class Book:
        written = 0

        def read(self, card: str, environment: Any) -> tuple[tuple[()], None]:
            return (), None

        def write(self, *page: Any) -> None:
            self.written += 1

    now, book = [0.0], Book()
    pricing = Pricing(book, clock=lambda: now[0])  # type: ignore[arg-type]
    quote = pricing.quote(engine.instance(MODEL), engine.plan(ask()).request)
    for seconds, written in ((0.0, 1), (1.0, 1), (11.0, 2)):
        now[0] = seconds
        quote.took("denoise", 1, 1.0)
        pricing.keep()
        assert book.written == written
    pricing.keep(now=True)  # nothing was learned since
    assert book.written == 2
    quote.took("denoise", 1, 1.0)
    pricing.keep(now=True)
    assert book.written == 3
