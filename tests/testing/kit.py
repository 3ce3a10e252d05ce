"""Broken twins of the kit's own small model: each keeps to everything but one thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from fv_core.cache import CacheRef
from fv_core.card import LoadContext, ModelCard, derive
from fv_core.loop import ComponentOutput, Done, Emission, ResolvedCall, Waiting, WorkPlan
from fv_core.loop.contract import LoopEnv, LoopOutputs, Slot
from fv_core.loop.flow_denoise import FlowDenoise, FlowPrediction, FlowState
from fv_core.loop.vae_decode import VaeDecode, VaeDecodeState
from fv_core.loop.work import StepResult
from fv_core.request import ResolvedRequest
from fv_core.testing.tiny import CARD, Denoiser, DenoiserModule, Vae, filled, returned, vae


class NanDenoiser(Denoiser):
    """Divides by zero towards the end."""

    def velocity(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        late = [int(call.rows["timestep"]) < 500 for call in calls]
        rows = [output.output.tensors["velocity"] for output in super().velocity(calls)]
        return [returned(velocity=row / 0 if each else row) for row, each in zip(rows, late, strict=True)]


class Mixing(Denoiser):
    """Draws every velocity of a forward towards their mean; alone it is its own."""

    def velocity(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        rows = [output.output.tensors["velocity"] for output in super().velocity(calls)]
        mean = torch.stack(rows).mean(0)
        return [returned(velocity=row + 0.1 * (mean - row)) for row in rows]


class OneBuffer(Vae):
    """Keeps what the next frame reads in one place, whoever's frame it is."""

    past: Tensor | None = None

    def decoded(self, call: ResolvedCall) -> ComponentOutput:
        computed = super().decoded(call)
        ((kept,),) = computed.caches  # type: ignore[misc]
        assert isinstance(kept, Tensor)
        self.past = kept if self.past is None else self.past.copy_(kept)
        return replace(computed, caches=([self.past],))


def nan_denoiser(context: LoadContext) -> NanDenoiser:
    return NanDenoiser(filled(context, DenoiserModule))


def mixing(context: LoadContext) -> Mixing:
    return Mixing(filled(context, DenoiserModule))


def one_buffer(context: LoadContext) -> OneBuffer:
    return OneBuffer(vae(context).module)


class KernelInNext(FlowDenoise):
    """Scales the latent while it describes the step."""

    def next(self, state: FlowState) -> WorkPlan | Done:
        state.latent.mul(1.0)
        return super().next(state)


class ImpureUpdate(FlowDenoise):
    """Wipes the latent that it was given once it is done with it."""

    def update(self, state: FlowState, prediction: FlowPrediction, result: StepResult) -> FlowState:
        new = super().update(state, prediction, result)
        state.latent.zero_()
        return new


CURRENT: list[Tensor] = []


class GlobalState(FlowDenoise):
    """Remembers in the module, between asking and updating, which latent it is at."""

    def next(self, state: FlowState) -> WorkPlan | Done:
        CURRENT[:] = [state.latent]
        return super().next(state)

    def update(self, state: FlowState, prediction: FlowPrediction, result: StepResult) -> FlowState:
        return super().update(replace(state, latent=CURRENT[0]), prediction, result)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorState(FlowState):
    """Holds an object that no file can."""

    generator: torch.Generator


class Unserialisable(FlowDenoise):
    """Keeps its generator in its state."""

    State = GeneratorState

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> FlowState:
        state = super().init(request, inputs, env)
        facts = {field.name: getattr(state, field.name) for field in fields(state)}
        return GeneratorState(**facts, generator=torch.Generator())


OPEN: list[Tensor] = []


class LeakOnCancel(FlowDenoise):
    """Keeps its noise where only a finished loop takes it away."""

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> FlowState:
        state = super().init(request, inputs, env)
        OPEN.append(state.latent.clone())
        return state

    def finalize(self, state: FlowState) -> LoopOutputs:
        del OPEN[-1:]
        return super().finalize(state)


class Unseeded(FlowDenoise):
    """Draws its noise from the process."""

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> FlowState:
        state = super().init(request, inputs, env)
        return replace(state, latent=torch.randn_like(state.latent))


class HashSeeded(FlowDenoise):
    """Draws its noise from a hash that every process makes anew."""

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> FlowState:
        return super().init(replace(request, seed=hash(request.prompt) % 2**32), inputs, env)


LATEST: list[CacheRef] = []


class SharedReference(VaeDecode):
    """Remembers in the module which version of its cache is the latest."""

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> VaeDecodeState:
        return self._noted(super().init(request, inputs, env))

    def next(self, state: VaeDecodeState) -> WorkPlan | Waiting | Done:
        return super().next(replace(state, cache=LATEST[0]))

    def update(self, state: VaeDecodeState, prediction: Tensor, result: StepResult) -> VaeDecodeState:
        return self._noted(super().update(state, prediction, result))

    def _noted(self, state: VaeDecodeState) -> VaeDecodeState:
        LATEST[:] = [state.cache]
        return state


class WrongOrder(VaeDecode):
    """Counts its chunks down."""

    def emit(self, old: VaeDecodeState, new: VaeDecodeState) -> tuple[Emission, ...]:
        last = new.total - 2
        return tuple(replace(one, index=last - one.index) for one in super().emit(old, new))


def card(name: str = "good", *, denoise: str = "", decode: str = "", **components: str) -> ModelCard:
    """The card `kit/<name>`; keywords name the parts of this module that it has in place of the sound ones."""
    parts = {
        part: replace(CARD.components[part], load=f"{__name__}:{load}") for part, load in components.items()
    }
    own = {"denoise": denoise, "decode": decode}
    loops = {
        loop_id: replace(CARD.loops[loop_id], loop=f"{__name__}:{loop}")
        for loop_id, loop in own.items()
        if loop
    }
    return derive(
        CARD,
        model_id=f"kit/{name}",
        family="kit",
        components={**CARD.components, **parts},
        loops={**CARD.loops, **loops},
    )


GOOD = card()
BROKEN = {
    "KernelInNext": card("kernel-in-next", denoise="KernelInNext"),
    "ImpureUpdate": card("impure-update", denoise="ImpureUpdate"),
    "GlobalState": card("global-state", denoise="GlobalState"),
    "Nan": card("nan", denoiser="nan_denoiser"),
    "WrongOrder": card("wrong-order", decode="WrongOrder"),
    "Unserialisable": card("unserialisable", denoise="Unserialisable"),
    "LeakOnCancel": card("leak-on-cancel", denoise="LeakOnCancel"),
    "Unseeded": card("unseeded", denoise="Unseeded"),
    "HashSeeded": card("hash-seeded", denoise="HashSeeded"),
    "SharedReference": card("shared-reference", decode="SharedReference"),
    "OneBuffer": card("one-buffer", vae="one_buffer"),
    "Mixing": card("mixing", denoiser="mixing"),
    "Invalid": derive(GOOD, recipe={"assumes_loop": "flow.unknown/v1"}),
}
"""By what is wrong with them."""
