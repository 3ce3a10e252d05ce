"""The loop that builds the contexts an image or an answer is made from: one block of text or of an image per step.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `InterleaveInferencer.interleave_inference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from torch import Tensor

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

WHOLE: Final = "context"
NO_TEXT: Final = "no_text"
NO_IMAGE: Final = "no_image"
BRANCHES: Final = (WHOLE, NO_TEXT, NO_IMAGE)
"""The whole context, what it is without the last text, and what it is without the images."""

_OPS: Final = {
    "system": "text_block",
    "latent": "latent_block",
    "vision": "vision_block",
    "text": "text_block",
}
_ROWS: Final = {"system": "ids", "latent": "latent", "vision": "tokens", "text": "ids"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParams:
    """`guided`: whether the contexts of the guidance branches are built beside the whole one."""

    guided: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One block to append.

    Args:
        kind: "system", "latent", "vision" or "text".
        value: its rows. length: positions it takes; an image takes one.
        base: the branch whose context it continues. into: the branches whose context the result is.
    """

    kind: str
    value: Tensor | ValueRef
    length: int
    base: str
    into: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextState:
    """`done` of `blocks` are in the contexts; `positions` are those of the next token, by branch."""

    blocks: tuple[Append, ...]
    done: int
    contexts: Mapping[str, CacheRef]
    positions: Mapping[str, int]
    scope: str


class BuildContext:
    """Role: `model`; ops `text_block`, `latent_block`, `vision_block`, each with one `paged_kv` cache.

    Reads `text` and optionally `system` (ids int64 [L], as tensors), `latent` [C, h, w] and `vision` [N, D] of an
    image, and `context` and `context_position` to go on from; order: system, latent, vision, text. Writes `context`
    and, where the card's `guided` is set, `no_text` and `no_image`; of each the next position, as `context_position`.

    Every block makes a cache of its own, so that branches share what they have in common and never see each other.
    """

    semantics: ClassVar[tuple[str, ...]] = ("context.blocks/v1",)
    State: ClassVar[type] = ContextState
    Params: ClassVar[type] = ContextParams
    request_params: ClassVar[tuple[str, ...]] = ()

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        owner = f"card {card.model_id}"
        self._branches = BRANCHES if read_params(ContextParams, spec.params, owner=owner).guided else (WHOLE,)
        check_roles(spec, ("model",), owner=owner)
        self._component = spec.binds["model"]

    def total(self, request: ResolvedRequest) -> int:
        """The most that there can be: the system text, two blocks of an image, and the text in two contexts."""
        return len(_OPS) + (len(self._branches) > 1)

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> ContextState:
        base = inputs.get("context", env.cache("paged_kv", "empty"))
        position = inputs.get("context_position", 0)
        if not isinstance(base, CacheRef) or not isinstance(position, int):
            raise TypeError("a context to go on from is a cache and its next position")
        if "text" not in inputs:
            raise ValueError("there is no text to make a context of")
        return ContextState(
            blocks=tuple(self._blocks(inputs)),
            done=0,
            contexts=dict.fromkeys(self._branches, base),
            positions=dict.fromkeys(self._branches, position),
            scope=env.scope,
        )

    def next(self, state: ContextState) -> WorkPlan | Done:
        if state.done == len(state.blocks):
            return Done()
        block = state.blocks[state.done]
        call = ComponentCall(
            component=self._component,
            op=_OPS[block.kind],
            rows={_ROWS[block.kind]: block.value, "position": state.positions[block.base]},
            caches=(
                CacheUse(
                    ref=state.contexts[block.base],
                    mode=CacheMode.APPEND,
                    into=f"{state.scope}/{state.done}",
                    shared=True,
                ),
            ),
        )
        return WorkPlan(calls=(call,), kind=WorkKind.COMPONENT, step=state.done, total=len(state.blocks))

    def predict(self, state: ContextState, result: StepResult) -> CacheRef:
        return result.caches[0][0]

    def update(self, state: ContextState, prediction: CacheRef, result: StepResult) -> ContextState:
        block = state.blocks[state.done]
        position = state.positions[block.base] + block.length
        return replace(
            state,
            done=state.done + 1,
            contexts={**state.contexts, **dict.fromkeys(block.into, prediction)},
            positions={**state.positions, **dict.fromkeys(block.into, position)},
        )

    def emit(self, old: ContextState, new: ContextState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: ContextState) -> LoopOutputs:
        positions = {f"{branch}_position": position for branch, position in state.positions.items()}
        return LoopOutputs(slots={**state.contexts, **positions})

    def _blocks(self, inputs: Mapping[str, Slot]) -> list[Append]:
        images = [kind for kind in ("latent", "vision") if kind in inputs]
        blocks = [self._append("system", inputs, WHOLE, BRANCHES)] if "system" in inputs else []
        blocks += [self._append(kind, inputs, WHOLE, (WHOLE, NO_TEXT)) for kind in images]
        if not images:
            return [*blocks, self._append("text", inputs, WHOLE, (WHOLE, NO_IMAGE))]
        blocks.append(self._append("text", inputs, WHOLE, (WHOLE,)))
        if NO_IMAGE in self._branches:
            blocks.append(self._append("text", inputs, NO_IMAGE, (NO_IMAGE,)))
        return blocks

    def _append(self, kind: str, inputs: Mapping[str, Slot], base: str, into: tuple[str, ...]) -> Append:
        value = inputs[kind]
        if not isinstance(value, (Tensor, ValueRef)):
            raise TypeError(f"block {kind} is a tensor, got {type(value).__name__}")
        length = 1
        if _OPS[kind] == "text_block":
            assert isinstance(value, Tensor), "the program hands ids over as tensors"
            length = len(value)
        kept = tuple(branch for branch in into if branch in self._branches)
        return Append(kind=kind, value=value, length=length, base=base, into=kept)
