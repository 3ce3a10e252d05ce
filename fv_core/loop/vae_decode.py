"""The generic causal VAE decode: one latent frame per step, its feature cache a reference of class `stream`.

Bit-equal to a one-shot decode of the same latent because a causal decoder works frame by frame inside
(diffusers 0.42.1, `AutoencoderKLWan._decode`), with two differences: nothing is kept in the module, and each chunk
can be shown before the next one is decoded.
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
from fv_core.loop.params import check_roles, read_params
from fv_core.loop.work import (
    CacheMode,
    CacheUse,
    ComponentCall,
    Done,
    Emission,
    StepResult,
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
        latent: normalised latent [C, F, H, W]; after the first step what op `prepare` made of it.
        prepared: whether op `prepare` has run.
        cache: the decoder's feature cache.
        chunks: decoded chunks on the CPU, fp32 [f, height, width, 3] in [0, 1].
    """

    latent: Tensor
    prepared: bool
    cache: CacheRef
    chunks: tuple[Tensor, ...]


class VaeDecode:
    """Role: `vae`. Reads `latent`, writes `video`: fp32 [F, height, width, 3] in [0, 1] on the CPU.

    Step 0 is op `prepare` (row latent, output latent); step i is op `decode` of latent frame i - 1 (row latent
    [C, 1, H, W], output frames, one `stream` cache appended), an emission each.
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
        return 1 + self._card.geometry(request.size, request.frames).latent[1]

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> VaeDecodeState:
        latent = inputs["latent"]
        if not isinstance(latent, Tensor):
            raise TypeError(f"the latent to decode is a tensor, got {type(latent).__name__}")
        cache = CacheRef(pool="stream", id=f"{env.scope}/features", version=0, owner=env.owner)
        return VaeDecodeState(latent=latent, prepared=False, cache=cache, chunks=())

    def next(self, state: VaeDecodeState) -> WorkPlan | Done:
        frames = state.latent.shape[1]
        if len(state.chunks) == frames:
            return Done()
        call = self._decode(state) if state.prepared else self._prepare(state)
        step = len(state.chunks) + int(state.prepared)
        return WorkPlan(calls=(call,), kind=WorkKind.VAE_DECODE, step=step, total=1 + frames)

    def predict(self, state: VaeDecodeState, result: StepResult) -> Tensor:
        return result.outputs[0].tensors["frames" if state.prepared else "latent"]

    def update(self, state: VaeDecodeState, prediction: Tensor, result: StepResult) -> VaeDecodeState:
        if not state.prepared:
            return replace(state, latent=prediction, prepared=True)
        return replace(state, cache=result.caches[0][0], chunks=(*state.chunks, prediction.cpu()))

    def emit(self, old: VaeDecodeState, new: VaeDecodeState) -> tuple[Emission, ...]:
        first = len(old.chunks)
        return tuple(Emission(index=first + i, tensor=chunk) for i, chunk in enumerate(new.chunks[first:]))

    def finalize(self, state: VaeDecodeState) -> LoopOutputs:
        return LoopOutputs(slots={"video": torch.cat(state.chunks)})

    def _prepare(self, state: VaeDecodeState) -> ComponentCall:
        return ComponentCall(component=self._component, op="prepare", rows={"latent": state.latent})

    def _decode(self, state: VaeDecodeState) -> ComponentCall:
        index = len(state.chunks)
        return ComponentCall(
            component=self._component,
            op="decode",
            rows={"latent": state.latent[:, index : index + 1]},
            static={"first": index == 0},
            caches=(CacheUse(ref=state.cache, mode=CacheMode.APPEND),),
        )
