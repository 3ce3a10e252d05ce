"""Gates on how a card's runs end: a cancel stops them within one component call, and nothing is left of any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fv_core.errors import Cancelled
from fv_core.parity.bits import tensors_alive
from fv_core.parity.trial import Finding, Trial
from fv_core.request import CancelScope
from fv_core.runtime.instance import ModelInstance


def cancel(trial: Trial) -> Finding:
    """Cancelled during any component call, a request makes no other."""
    wrong, calls = [], _calls(trial)
    for during in range(1, calls):
        made = _cancelled(trial, during)
        if made != during:
            wrong.append(f"cancelled during call {during}, it made {made} calls")
    return Finding(wrong=wrong, of=calls - 1, counted="cancels after which calls began")


def cancel_leak(trial: Trial) -> Finding:
    """However far a request was when it was cancelled, everything comes back."""
    calls = _calls(trial)

    def cancels() -> int:
        for during in range(1, calls):
            _cancelled(trial, during)
        return calls - 1

    return _left_behind(trial, cancels, "cancelled")


def leak(trial: Trial) -> Finding:
    """Finished requests leave nothing behind."""

    def runs() -> int:
        for request in trial.requests:
            trial.engine.run(request)
        return len(trial.requests)

    return _left_behind(trial, runs, "finished")


def _left_behind(trial: Trial, requests: Callable[[], int], ended: str) -> Finding:
    requests()  # what is made once and kept, is made now
    before, held = tensors_alive(), trial.engine.counters()
    made = requests()
    more = max(0, tensors_alive() - before)
    wrong = [f"{more} tensors are alive after {made} {ended} requests that were not before"] if more else []
    if trial.engine.counters() != held:
        wrong.append(f"counters: {held} before, {trial.engine.counters()} after")
        more += 1
    return Finding(wrong=wrong, of=made, counted=f"tensors left by {ended} requests", figure=more)


def _calls(trial: Trial) -> int:
    """Component calls of the first request."""
    return _cancelled(trial, 0)


def _cancelled(trial: Trial, during: int) -> int:
    """How many forwards the first request makes, cancelled within forward `during`; 0 cancels none."""
    scope, made = CancelScope(), 0

    def forward() -> None:
        nonlocal made
        made += 1
        if made == during:
            scope.cancel()

    with _watched(trial.engine.instance(trial.card.model_id), forward):
        try:
            trial.engine.run(trial.requests[0], cancel=scope)
        except Cancelled:
            assert during, "nobody cancelled it"
    return made


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
