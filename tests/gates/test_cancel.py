"""The cancel gate: no component call begins after a cancel, all is given back, and neighbours keep their bits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fv_core import Cancelled, CancelScope, Engine, Failed, MediaChunk, Request, StepDone
from fv_core.request import Numerics, RequestEvent
from fv_core.runtime.job import Job, advance
from fv_core.runtime.stores import Counters

Ask = Callable[..., Request]
NOTHING = Counters(requests=0, values=0, value_bytes=0, caches=0, cache_bytes=0)
FORWARDS = 2 + 2 * 2 + 1 + 2  # two prompts, two steps of two branches, prepare, two latent frames


def test_an_uncancelled_run_makes_the_forwards_that_the_gate_counts(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    engine.run(ask(), cancel=CancelScope())
    assert len(watch.forwards) == FORWARDS


@pytest.mark.parametrize("during", range(1, FORWARDS))
def test_cancel_from_another_thread_lets_the_running_call_end_and_starts_no_other(
    during: int, engine: Engine, watch: Any, ask: Ask
) -> None:
    cancel, inside = CancelScope(), threading.Event()

    def cancel_when_inside() -> None:
        assert inside.wait(timeout=60)
        cancel.cancel()

    def wait_for_it(forward: Any) -> None:
        if len(watch.forwards) == during:
            inside.set()
            thread.join(timeout=60)

    watch.before = wait_for_it
    thread = threading.Thread(target=cancel_when_inside)
    thread.start()
    with pytest.raises(Cancelled) as caught:
        engine.run(ask(), cancel=cancel)
    assert caught.value.code == "FV510"
    assert len(watch.forwards) == during
    assert engine.counters() == NOTHING


@pytest.mark.parametrize("after", range(FORWARDS - 2 - 1))
def test_cancel_from_the_observer_starts_no_other_call(
    after: int, engine: Engine, watch: Any, ask: Ask
) -> None:
    cancel = CancelScope()
    events: list[RequestEvent] = []
    made: list[int] = []

    def observe(event: RequestEvent) -> None:
        events.append(event)
        if isinstance(event, StepDone) and sum(isinstance(each, StepDone) for each in events) == after + 1:
            made.append(len(watch.forwards))
            cancel.cancel()

    with pytest.raises(Cancelled):
        engine.run(ask(), cancel=cancel, observer=observe)
    assert len(watch.forwards) == made[0] < FORWARDS
    assert isinstance(events[-1], Failed)
    assert events[-1].code == "FV510"
    assert engine.counters() == NOTHING


def test_frames_that_were_finished_before_the_cancel_have_been_told(engine: Engine, ask: Ask) -> None:
    cancel = CancelScope()
    chunks: list[MediaChunk] = []

    def observe(event: RequestEvent) -> None:
        if isinstance(event, MediaChunk):
            chunks.append(event)
            cancel.cancel()

    whole = engine.run(ask(frames=9))
    with pytest.raises(Cancelled):
        engine.run(ask(frames=9), cancel=cancel, observer=observe)
    (chunk,) = chunks
    assert (chunk.frames == whole.frames[:1]).all()


def run(jobs: list[Job]) -> None:
    while going := [job for job in jobs if not job.done]:
        advance(going)


@pytest.mark.parametrize("numerics", Numerics)
def test_neighbours_of_a_cancelled_request_are_not_affected(
    numerics: Numerics, engine: Engine, watch: Any, ask: Ask
) -> None:
    expected = engine.run(ask(numerics=numerics)).tensors["latent"]
    cancel = CancelScope()
    jobs = [engine.start(ask(numerics=numerics)), engine.start(ask(seed=2, numerics=numerics), cancel=cancel)]

    def cancel_in_the_loop(forward: Any) -> None:
        if forward.component == "transformer":
            cancel.cancel()

    watch.before = cancel_in_the_loop
    run(jobs)
    assert jobs[0].error is None
    assert isinstance(jobs[1].error, Cancelled)
    tolerance = 1e-5 if numerics is Numerics.FAST else 0.0
    torch.testing.assert_close(jobs[0].run.tensor("latent"), expected, rtol=0, atol=tolerance)
    jobs[0].close()
    assert engine.counters() == NOTHING  # the cancelled one gave back what it held without being closed


def test_cancel_during_a_shared_forward_stops_the_forwards_after_it(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    """Two requests of different sizes take two forwards in one round; the second is cancelled during the first."""
    cancel = CancelScope()
    jobs = [
        engine.start(ask(numerics=Numerics.FAST)),
        engine.start(ask(size=(32, 16), numerics=Numerics.FAST), cancel=cancel),
    ]
    watch.before = lambda forward: cancel.cancel() if forward.component == "transformer" else None
    run(jobs)
    widths = {row["latent"].shape[-1] for forward in watch.of("transformer") for row in forward.rows}
    assert widths == {2}
    assert isinstance(jobs[1].error, Cancelled)


def test_one_scope_cancels_all_its_requests(engine: Engine, ask: Ask) -> None:
    cancel = CancelScope()

    def observe(event: RequestEvent) -> None:
        cancel.cancel()

    results = engine.run_many([ask(), ask(seed=2)], cancel=cancel, observer=observe)
    assert [result.error.code for result in results if result.error is not None] == ["FV510", "FV510"]
    assert engine.counters() == NOTHING
