"""Broken twins of the kit's own small model: each keeps to everything but one thing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
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
from fv_core.testing.tiny import CARD, Denoiser, DenoiserModule, Text, Vae, filled, returned, text, vae


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


class Rounding(Denoiser):
    """Rounds the last row of a forward otherwise where it has neighbours, as kernels for other sizes do."""

    def velocity(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        outputs = super().velocity(calls)
        if len(calls) > 1:
            outputs[-1].output.tensors["velocity"].view(torch.int32).view(-1)[0] ^= 1
        return outputs


class OneBuffer(Vae):
    """Keeps what the next frame reads in one place, whoever's frame it is."""

    past: Tensor | None = None

    def decoded(self, call: ResolvedCall) -> ComponentOutput:
        computed = super().decoded(call)
        ((kept,),) = computed.caches  # type: ignore[misc]
        assert isinstance(kept, Tensor)
        self.past = kept if self.past is None else self.past.copy_(kept)
        return replace(computed, caches=([self.past],))


class Deaf(Denoiser):
    """Never reads the text."""

    def _shift(self, call: ResolvedCall) -> Tensor:
        return torch.zeros(())


class Memo(Text):
    """Encodes the first prompt of each length, and takes the others of that length for it."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)
        self.known: dict[int, list[ComponentOutput]] = {}

    def encode(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        lengths = [len(str(call.rows["text"])) for call in calls]
        for length, call in zip(lengths, calls, strict=True):
            self.known.setdefault(length, super().encode([call]))
        return [self.known[length][0] for length in lengths]


class Meddling(Text):
    """Writes to its process: the environment, the number of threads, and a generator that it never draws from."""

    def encode(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        os.environ["KIT_MEDDLED"] = "1"
        torch.set_num_threads(1)
        torch.manual_seed(0)
        return super().encode(calls)


def overweight(context: LoadContext) -> Text:
    """A buffer more where there are weights: what the architecture states is too little."""
    component = text(context)
    if not component.module.weight.is_meta:
        component.module.register_buffer("table", torch.zeros(1))
    return component


def deaf(context: LoadContext) -> Deaf:
    return Deaf(filled(context, DenoiserModule))


def memo(context: LoadContext) -> Memo:
    return Memo(text(context).module)


def meddling(context: LoadContext) -> Meddling:
    return Meddling(text(context).module)


def nan_denoiser(context: LoadContext) -> NanDenoiser:
    return NanDenoiser(filled(context, DenoiserModule))


def mixing(context: LoadContext) -> Mixing:
    return Mixing(filled(context, DenoiserModule))


def rounding(context: LoadContext) -> Rounding:
    return Rounding(filled(context, DenoiserModule))


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


class ImpureUnguided(ImpureUpdate):
    """Wipes it where guidance is off."""

    def update(self, state: FlowState, prediction: FlowPrediction, result: StepResult) -> FlowState:
        if len(result.outputs) > 1:
            return FlowDenoise.update(self, state, prediction, result)
        return super().update(state, prediction, result)


class KernelUnguided(FlowDenoise):
    """Scales the latent while it describes a step without guidance."""

    def next(self, state: FlowState) -> WorkPlan | Done:
        plan = super().next(state)
        if isinstance(plan, WorkPlan) and len(plan.calls) == 1:
            state.latent.mul(1.0)
        return plan


class SeedBlind(FlowDenoise):
    """Draws the same noise for every request."""

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> FlowState:
        return super().init(replace(request, seed=0), inputs, env)


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


KEPT: list[npt.NDArray[np.float64]] = []


class LeakOfArrays(VaeDecode):
    """Keeps 8 MB for every finished request, in no tensor."""

    def finalize(self, state: VaeDecodeState) -> LoopOutputs:
        KEPT.append(np.ones(2**20))
        return super().finalize(state)


class LeakOfTensors(VaeDecode):
    """Keeps a tensor for every finished request."""

    def finalize(self, state: VaeDecodeState) -> LoopOutputs:
        LEFT.append(torch.ones(1))
        return super().finalize(state)


LEFT: list[Tensor] = []


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
    "Overweight": card("overweight", text="overweight"),
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
    "Memo": card("memo", text="memo"),
    "Meddling": card("meddling", text="meddling"),
    "LeakOfArrays": card("leak-of-arrays", decode="LeakOfArrays"),
    "Invalid": derive(GOOD, recipe={"assumes_loop": "flow.unknown/v1"}),
}
"""By what is wrong with them."""

FURTHER = {
    "Deaf": ("inputs", card("deaf", denoiser="deaf")),
    "SeedBlind": ("inputs", card("seed-blind", denoise="SeedBlind")),
    "ImpureUnguided": ("purity", card("impure-unguided", denoise="ImpureUnguided")),
    "KernelUnguided": ("next", card("kernel-unguided", denoise="KernelUnguided")),
    "Rounding": ("batch", card("rounding", denoiser="rounding")),
    "LeakOfTensors": ("leak", card("leak-of-tensors", decode="LeakOfTensors")),
    "OtherSpatial": ("finite", derive(GOOD, latent={"spatial": 4})),
    "OtherTemporal": ("finite", derive(GOOD, latent={"temporal": 2})),
}
"""Further twins with the gate that is meant for each: a whole suite for every one takes minutes."""
