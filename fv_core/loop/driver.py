"""One step of a loop, the same in the engine and without one."""

from __future__ import annotations

from typing import Any, TypeVar

from fv_core.loop.contract import Loop
from fv_core.loop.work import StepResult

S = TypeVar("S")


def advance(loop: Loop[S, Any], state: S, result: StepResult) -> S:
    """The state after a step: `update(s, predict(s, result), result)`."""
    return loop.update(state, loop.predict(state, result), result)
