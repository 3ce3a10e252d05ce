"""Steps of loops outside of requests, with a gradient where the driver says: what training computes with.

The loop describes the step and reads its outputs as when it serves, so the forward that is trained is the one that is
served. What serving adds is left out: results are not shared, interceptors and adapters of requests have no part.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor

from fv_core.errors import RunError, TrainError
from fv_core.loop import CallOutput, ComponentCall, Loop, ResolvedCall, StepResult, WorkPlan
from fv_core.request import Numerics
from fv_core.runtime.execution.returned import checked
from fv_core.runtime.instance import ModelInstance

S = TypeVar("S")
P = TypeVar("P")
Place = tuple[int, int]


def predictions(instance: ModelInstance, loop: Loop[S, P], states: Sequence[S], *, grad: bool) -> list[P]:
    """What the next step of each state comes to. Calls of one operation and shape share a forward, all of them.

    Args:
        states: none of which is done or waits.
        grad: whether a gradient flows through the step; without one nothing is kept for it.

    Raises:
        RunError: FV502, a component failed or returned something else than its contract says.
        TrainError: FV704, the loop uses caches.
    """
    with torch.set_grad_enabled(grad):
        plans = [_plan(loop, state) for state in states]
        outputs = _outputs(instance, plans)
        results = (
            StepResult(
                outputs=tuple(outputs[i, j] for j in range(len(plan.calls))), caches=((),) * len(plan.calls)
            )
            for i, plan in enumerate(plans)
        )
        return [loop.predict(state, result) for state, result in zip(states, results, strict=True)]


def _plan(loop: Loop[S, P], state: S) -> WorkPlan:
    plan = loop.next(state)
    assert isinstance(plan, WorkPlan), "a state that is done or waits has no next step"
    return plan


def _outputs(instance: ModelInstance, plans: Sequence[WorkPlan]) -> dict[Place, CallOutput]:
    alike: dict[Hashable, list[tuple[Place, ComponentCall, ResolvedCall]]] = {}
    for i, plan in enumerate(plans):
        for j, call in enumerate(plan.calls):
            resolved = _resolved(call)
            batch = instance.component(call.component).batch_key(call.op, resolved)
            key = (call.component, call.op, tuple(sorted(call.static.items())), batch)
            alike.setdefault(key, []).append(((i, j), call, resolved))
    return {place: output for members in alike.values() for place, output in _forward(instance, members)}


def _resolved(call: ComponentCall) -> ResolvedCall:
    if call.caches:
        raise TrainError(
            "FV704",
            name=f"{call.component}.{call.op}",
            rule="uses caches, through which no gradient is known to flow",
            remedy="Train a model whose loop computes each step from its rows alone.",
        )
    rows = cast("dict[str, Tensor | str | int | float]", call.rows)
    return ResolvedCall(rows=rows, static=call.static, caches=(), numerics=Numerics.FAST)


def _forward(
    instance: ModelInstance, members: Sequence[tuple[Place, ComponentCall, ResolvedCall]]
) -> list[tuple[Place, CallOutput]]:
    places, calls, resolved = zip(*members, strict=True)
    first = calls[0]
    try:
        returned = instance.component(first.component).forward_batch(first.op, resolved)
    except Exception as error:
        raise RunError(
            "FV502",
            name=f"component {first.component}.{first.op}",
            rule=f"failed on {len(calls)} samples: {type(error).__name__}: {error}",
            remedy="FV_DEBUG=1 shows the traceback.",
        ) from error
    return [(place, one.output) for place, one in zip(places, checked(returned, calls), strict=True)]
