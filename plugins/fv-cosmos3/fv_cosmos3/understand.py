"""Understanding a prompt: its keys and values, computed once and read by every step that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from fv_core.cache import CacheRef, ValueRef
from fv_core.card import LoopSpec, ModelCard
from fv_core.loop import (
    CacheMode,
    CacheUse,
    ComponentCall,
    Done,
    Emission,
    LoopEnv,
    LoopOutputs,
    Slot,
    StepResult,
    WorkKind,
    WorkPlan,
)
from fv_core.loop.params import check_roles, read_params
from fv_core.request import ResolvedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderstandParams:
    """There are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderstandState:
    """`tokens` int64 [L]; `kv` is empty until `done`."""

    tokens: ValueRef
    kv: CacheRef
    done: bool


class Understand:
    """Role: `decoder`, op `text_kv` (row tokens, one `text_kv` cache appended).

    Reads `tokens`, writes the cache `kv`.
    """

    semantics: ClassVar[tuple[str, ...]] = ("ar.understand/v1",)
    State: ClassVar[type] = UnderstandState
    Params: ClassVar[type] = UnderstandParams
    request_params: ClassVar[tuple[str, ...]] = ()

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        owner = f"card {card.model_id}"
        read_params(UnderstandParams, spec.params, owner=owner)
        check_roles(spec, ("decoder",), owner=owner)
        self._component = spec.binds["decoder"]

    def total(self, request: ResolvedRequest) -> int:
        return 1

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> UnderstandState:
        tokens = inputs["tokens"]
        if not isinstance(tokens, ValueRef):
            raise TypeError(f"tokens are a reference to a tensor, got {type(tokens).__name__}")
        return UnderstandState(tokens=tokens, kv=env.cache("text_kv", "prompt"), done=False)

    def next(self, state: UnderstandState) -> WorkPlan | Done:
        if state.done:
            return Done()
        use = CacheUse(ref=state.kv, mode=CacheMode.APPEND, shared=True)
        call = ComponentCall(
            component=self._component, op="text_kv", rows={"tokens": state.tokens}, caches=(use,)
        )
        return WorkPlan(calls=(call,), kind=WorkKind.COMPONENT, step=0, total=1)

    def predict(self, state: UnderstandState, result: StepResult) -> CacheRef:
        return result.caches[0][0]

    def update(self, state: UnderstandState, prediction: CacheRef, result: StepResult) -> UnderstandState:
        return replace(state, kv=prediction, done=True)

    def emit(self, old: UnderstandState, new: UnderstandState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: UnderstandState) -> LoopOutputs:
        return LoopOutputs(slots={"kv": state.kv})
