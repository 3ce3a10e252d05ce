"""Gates on how a card's runs end: a cancel stops them within one component call, and nothing is left of any."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from fv_core.errors import Cancelled
from fv_core.parity.bits import Bits, bits, tensors_alive
from fv_core.parity.trial import Finding, Trial, stride_of
from fv_core.request import CancelScope
from fv_core.runtime.engine import Engine
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.job import advance

_SPARE = 2**20
"""Bytes by which the interpreter's own tables may grow."""
_ROUNDS = 3
"""How often all requests of a gate run after everything that is made once was made."""


def cancel(trial: Trial) -> Finding:
    """Cancelled during any component call, a request makes no other; those after the first, during a few calls.

    And whoever takes steps together with it, while it is cancelled during a few of its calls, comes to the same bits.
    """
    wrong, of = [], 0
    for number, during in _cancels(trial):
        of += 1
        made = _cancelled(trial, number, during)
        if made != during:
            wrong.append(f"request {number + 1}, cancelled during call {during}, made {made} calls")
    for number in range(len(trial.requests)):
        calls = _cancelled(trial, number, 0)
        for during in range(1, calls, stride_of(1, calls)):
            of += 1
            beside, came_to = _beside_cancelled(trial, number, during)
            if came_to != trial.alone[beside]:
                wrong.append(
                    f"request {beside + 1} differs beside request {number + 1}, cancelled during call {during}"
                )
    return Finding(wrong=wrong, of=of, counted="cancels after which calls began or a neighbour differed")


def cancel_leak(trial: Trial) -> Finding:
    """However far a request was when it was cancelled, everything comes back."""
    places = list(_cancels(trial))

    def cancels() -> int:
        for number, during in places:
            _cancelled(trial, number, during)
        return len(places)

    return left_behind(trial.engine, cancels, "cancelled")


def leak(trial: Trial) -> Finding:
    """Finished requests leave nothing behind."""

    def runs() -> int:
        for request in trial.requests:
            trial.engine.run(request)
        return len(trial.requests)

    return left_behind(trial.engine, runs, "finished")


def left_behind(engine: Engine, requests: Callable[[], int], ended: str) -> Finding:
    """What is there after the requests of `requests`, run again and again, that was not after the first time: tensors,
    memory that Python and numpy have given out, threads, and what the engine counts.
    """
    with _traced():
        requests()  # what is made once and kept, is made now
        threads = set(threading.enumerate())
        before, held, memory = tensors_alive(), engine.counters(), tracemalloc.get_traced_memory()[0]
        made = sum(requests() for _ in range(_ROUNDS))
        more, grown = max(0, tensors_alive() - before), tracemalloc.get_traced_memory()[0] - memory
    wrong = [f"{more} tensors are alive after {made} {ended} requests that were not before"] if more else []
    for thread in set(threading.enumerate()) - threads:
        wrong.append(f"thread {thread.name} runs after {made} {ended} requests that did not before")
        more += 1
    if grown > _SPARE:
        wrong.append(f"{grown} bytes are held after {made} {ended} requests that were not before")
        more += 1
    if engine.counters() != held:
        wrong.append(f"counters: {held} before, {engine.counters()} after")
        more += 1
    return Finding(wrong=wrong, of=made, counted=f"tensors left by {ended} requests", figure=more)


@contextmanager
def _traced() -> Iterator[None]:
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        yield
    finally:
        if not running:
            tracemalloc.stop()


def _cancels(trial: Trial) -> Iterator[tuple[int, int]]:
    """Where requests are cancelled: the number of each, from 0, and the component call."""
    for number in range(len(trial.requests)):
        calls = _cancelled(trial, number, 0)
        stride = stride_of(number, calls)
        yield from ((number, during) for during in range(stride, calls, stride))


def _cancelled(trial: Trial, number: int, during: int) -> int:
    """How many forwards request `number` makes, cancelled within forward `during`; 0 cancels none."""
    scope, made = CancelScope(), 0

    def forward() -> None:
        nonlocal made
        made += 1
        if made == during:
            scope.cancel()

    with _watched(trial.engine.instance(trial.card.model_id), forward):
        try:
            trial.engine.run(trial.requests[number], cancel=scope)
        except Cancelled:
            assert during, "nobody cancelled it"
    return made


def _beside_cancelled(trial: Trial, number: int, during: int) -> tuple[int, Bits | str]:
    """The request after `number`, and what it comes to beside that one, cancelled within their forward `during`."""
    beside, scope, made = (number + 1) % len(trial.requests), CancelScope(), 0

    def forward() -> None:
        nonlocal made
        made += 1
        if made == during:
            scope.cancel()

    with _watched(trial.engine.instance(trial.card.model_id), forward), ExitStack() as stack:
        cancelled, job = (
            stack.enter_context(closing(job))
            for job in (
                trial.engine.start(trial.requests[number], cancel=scope),
                trial.engine.start(trial.requests[beside]),
            )
        )
        while not job.done:
            advance([one for one in (cancelled, job) if not one.done])
        return beside, str(job.error) if job.error else bits(trial.engine.clip(job).tensors)


@contextmanager
def _watched(instance: ModelInstance, forward: Callable[[], None]) -> Iterator[None]:
    """Calls `forward` at the beginning of every forward of the instance's components."""
    components = [instance.component(name) for name in instance.card.components]
    for component in components:
        setattr(component, "forward_batch", _announced(component.forward_batch, forward))  # noqa: B010
    try:
        yield
    finally:
        for component in components:
            delattr(component, "forward_batch")


def _announced(forward_batch: Callable[..., Any], forward: Callable[[], None]) -> Callable[..., Any]:
    def announced(*call: Any) -> Any:
        forward()
        return forward_batch(*call)

    return announced
