"""The generic causal VAE decode: one latent frame per step, its feature cache a reference of class `stream`.

Bit-equal to a one-shot decode of the same latent because a causal decoder works frame by frame inside
(diffusers 0.42.1, `AutoencoderKLWan._decode`), with two differences: nothing is kept in the module, and each chunk
can be shown before the next one is decoded. The latent may come whole or, as a stream, in chunks of any length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fv_core.cache import CacheRef
from fv_core.card import LoopSpec, ModelCard
from fv_core.loop.contract import LoopEnv, LoopOutputs, Slot
from fv_core.loop.inputs import tensor
from fv_core.loop.outputs import tensor_of
from fv_core.loop.params import check_roles, read_params
from fv_core.loop.work import (
    CacheMode,
    CacheUse,
    ComponentCall,
    Done,
    Emission,
    StepResult,
    Waiting,
    WorkKind,
    WorkPlan,
)
from fv_core.request import ResolvedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class VaeDecodeParams:
    """There are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VaeDecodeState:
    """Everything that changes while a latent is decoded.

    Args:
        waiting: chunks of the normalised latent [C, f, H, W] that op `prepare` has not seen yet.
        latent: what op `prepare` made of the chunk at work; None between chunks.
        ended: whether no further chunk comes.
        cache: the decoder's feature cache.
        steps: steps taken; total: the most there can be.
        chunks: decoded chunks on the CPU, fp32 [f, height, width, 3] in [0, 1].
    """

    waiting: tuple[Tensor, ...]
    latent: Tensor | None
    ended: bool
    cache: CacheRef
    steps: int
    total: int
    chunks: tuple[Tensor, ...]


class VaeDecode:
    """Role: `vae`. Reads `latent`, whole or as a stream; writes `video`: fp32 [F, height, width, 3] in [0, 1], CPU.

    For each chunk op `prepare` (row latent, output latent of its shape), then op `decode` of each of its latent frames
    (row latent [C, 1, H, W], output frames [f, height, width, 3], one `stream` cache appended), an emission each.
    """

    semantics: ClassVar[tuple[str, ...]] = ("vae.decode/v1",)
    State: ClassVar[type] = VaeDecodeState
    Params: ClassVar[type] = VaeDecodeParams
    request_params: ClassVar[tuple[str, ...]] = ()

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        self._card = card
        owner = f"card {card.model_id}"
        read_params(VaeDecodeParams, spec.params, owner=owner)
        check_roles(spec, ("vae",), owner=owner)
        self._component = spec.binds["vae"]

    def total(self, request: ResolvedRequest) -> int:
        """A `prepare` and a `decode` per latent frame, were each frame a chunk of its own; whole latents take fewer."""
        return 1 + self._frames(request)

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> VaeDecodeState:
        latent = tensor(inputs, "latent") if "latent" in inputs else None
        return VaeDecodeState(
            waiting=() if latent is None else (latent,),
            latent=None,
            ended=latent is not None,
            cache=env.cache("stream", "features"),
            steps=0,
            total=self.total(request),
            chunks=(),
        )

    def feed(self, state: VaeDecodeState, role: str, chunk: Tensor | None) -> VaeDecodeState:
        if chunk is None:
            return replace(state, ended=True)
        # Each further chunk is prepared by a step of its own.
        more = 1 if state.steps or state.waiting else 0
        return replace(state, waiting=(*state.waiting, chunk), total=state.total + more)

    def next(self, state: VaeDecodeState) -> WorkPlan | Waiting | Done:
        if state.latent is not None:
            call = self._decode(state, state.latent)
        elif state.waiting:
            call = ComponentCall(component=self._component, op="prepare", rows={"latent": state.waiting[0]})
        else:
            return Done() if state.ended else Waiting()
        return WorkPlan(calls=(call,), kind=WorkKind.VAE_DECODE, step=state.steps, total=state.total)

    def predict(self, state: VaeDecodeState, result: StepResult) -> Tensor:
        (output,) = result.outputs
        if state.latent is None:
            shape = state.waiting[0].shape
            return tensor_of(output, "latent", of=f"{self._component}.prepare", shape=shape)
        height, width = (cells * self._card.latent.spatial for cells in state.latent.shape[2:])
        return tensor_of(output, "frames", of=f"{self._component}.decode", shape=("frames", height, width, 3))

    def update(self, state: VaeDecodeState, prediction: Tensor, result: StepResult) -> VaeDecodeState:
        if state.latent is None:
            return replace(state, latent=prediction, waiting=state.waiting[1:], steps=state.steps + 1)
        left = state.latent[:, 1:]
        return replace(
            state,
            latent=left if left.shape[1] else None,
            cache=result.caches[0][0],
            chunks=(*state.chunks, prediction.cpu()),
            steps=state.steps + 1,
        )

    def emit(self, old: VaeDecodeState, new: VaeDecodeState) -> tuple[Emission, ...]:
        first = len(old.chunks)
        return tuple(
            Emission(output="video", index=first + i, tensor=chunk)
            for i, chunk in enumerate(new.chunks[first:])
        )

    def finalize(self, state: VaeDecodeState) -> LoopOutputs:
        return LoopOutputs(slots={"video": torch.cat(state.chunks)})

    def _frames(self, request: ResolvedRequest) -> int:
        return self._card.geometry(request.size, request.frames).latent[1]

    def _decode(self, state: VaeDecodeState, latent: Tensor) -> ComponentCall:
        return ComponentCall(
            component=self._component,
            op="decode",
            rows={"latent": latent[:, :1]},
            static={"first": not state.chunks},
            caches=(CacheUse(ref=state.cache, mode=CacheMode.APPEND),),
        )
