"""A component node as a loop of one step, so that the runtime drives, prices and cancels everything the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fv_core.cache import CacheRef, ValueRef
from fv_core.loop.contract import LoopEnv, LoopOutputs, Slot
from fv_core.loop.outputs import absent, misfit
from fv_core.loop.work import ComponentCall, Done, Emission, StepResult, WorkKind, WorkPlan
from fv_core.program import ComponentNode
from fv_core.request import ResolvedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class OneCallParams:
    """There are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneCallState:
    """The rows of the call, and its outputs once it is done."""

    rows: Mapping[str, Tensor | ValueRef | str | bool | int | float]
    outputs: Mapping[str, Tensor | str] | None


class OneCall:
    """Calls `node.op` on `node.component` once with the node's reads as rows."""

    semantics: ClassVar[tuple[str, ...]] = ("component.call/v1",)
    State: ClassVar[type] = OneCallState
    Params: ClassVar[type] = OneCallParams
    request_params: ClassVar[tuple[str, ...]] = ()

    def __init__(self, node: ComponentNode) -> None:
        self._node = node

    def total(self, request: ResolvedRequest) -> int:
        return 1

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> OneCallState:
        return OneCallState(rows={role: _row(role, slot) for role, slot in inputs.items()}, outputs=None)

    def next(self, state: OneCallState) -> WorkPlan | Done:
        if state.outputs is not None:
            return Done()
        node = self._node
        call = ComponentCall(component=node.component, op=node.op, rows=state.rows, static=node.static)
        return WorkPlan(calls=(call,), kind=WorkKind.COMPONENT, step=0, total=1)

    def predict(self, state: OneCallState, result: StepResult) -> Mapping[str, Tensor | str]:
        (output,) = result.outputs
        outputs: dict[str, Tensor | str] = {**output.tensors, **output.texts}
        for name in self._node.writes.keys() - outputs.keys():
            raise misfit(
                f"output {name} of component {self._node.component}.{self._node.op}",
                found=absent(output),
                legal=", ".join(sorted(self._node.writes)),
                remedy="Return it under this name, or correct `writes` of the card's node.",
            )
        return outputs

    def update(
        self, state: OneCallState, prediction: Mapping[str, Tensor | str], result: StepResult
    ) -> OneCallState:
        return OneCallState(rows=state.rows, outputs=dict(prediction))

    def emit(self, old: OneCallState, new: OneCallState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: OneCallState) -> LoopOutputs:
        assert state.outputs is not None
        return LoopOutputs(slots=state.outputs)


def _row(role: str, slot: Slot) -> Tensor | ValueRef | str | bool | int | float:
    if isinstance(slot, CacheRef):
        raise TypeError(f"read {role} is a cache, which a component node cannot read; a loop can")
    return slot
