"""A small real model for the kit's own tests, and broken twins of it: each keeps to everything but one thing.

Components are torch modules of a few hundred parameters behind the generic loops.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from fv_core.card import ComponentSpec, LatentSpec, LoadContext, LoopSpec, ModelCard, RecipeSpec, derive
from fv_core.loop import CallOutput, ComponentOutput, Done, Emission, ResolvedCall, WorkPlan
from fv_core.loop.contract import LoopEnv, LoopOutputs, Slot
from fv_core.loop.flow_denoise import FlowDenoise, FlowPrediction, FlowState
from fv_core.loop.vae_decode import VaeDecode, VaeDecodeState
from fv_core.loop.work import StepResult
from fv_core.program import text_to_video
from fv_core.request import ResolvedRequest, TaskType

CHANNELS, WIDTH, WORDS = 4, 8, 16
FLOW = "flow.euler.cfg/v1"


class Part:
    """One call per forward."""

    def __init__(self, module: nn.Module) -> None:
        self.module: Any = module

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        return [getattr(self, op)(call) for call in calls]


class Text(Part):
    """Op `encode`: one row of embeddings per byte."""

    def encode(self, call: ResolvedCall) -> ComponentOutput:
        codes = str(call.rows["text"]).encode()[:WORDS].ljust(WORDS, b" ")
        return returned(embeds=self.module(torch.tensor(list(codes))))


class Denoiser(Part):
    """Op `velocity`."""

    def velocity(self, call: ResolvedCall) -> ComponentOutput:
        latent, text = tensor(call, "latent"), tensor(call, "text")
        shift = self.module.text(text.mean(0)).view(-1, 1, 1, 1) * (int(call.rows["timestep"]) / 1000)
        return returned(velocity=self.module.conv(latent.unsqueeze(0))[0] + shift)


class NanDenoiser(Denoiser):
    """Divides by zero towards the end."""

    def velocity(self, call: ResolvedCall) -> ComponentOutput:
        computed = super().velocity(call).output.tensors["velocity"]
        return returned(velocity=computed / 0 if int(call.rows["timestep"]) < 500 else computed)


class Vae(Part):
    """Ops `prepare` and `decode`; a frame's decoding reads the latent frame before it from the cache."""

    def prepare(self, call: ResolvedCall) -> ComponentOutput:
        return returned(latent=tensor(call, "latent") * 0.5)

    def decode(self, call: ResolvedCall) -> ComponentOutput:
        latent, (before,) = tensor(call, "latent"), call.caches
        frames = 1 if call.static["first"] else 4
        past = before[0] if before else torch.zeros_like(latent)
        assert isinstance(past, Tensor)
        cells = self.module((latent + past).permute(1, 2, 3, 0))[0]
        height, width, _ = cells.shape
        pixels = cells.view(height, width, 4, 8, 8, 3)[:, :, :frames].permute(2, 0, 3, 1, 4, 5)
        video = pixels.reshape(frames, 8 * height, 8 * width, 3).sigmoid()
        output = CallOutput(tensors={"frames": video})
        return ComponentOutput(output=output, caches=([latent.clone()],))


class DenoiserModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1)
        self.text = nn.Linear(WIDTH, CHANNELS)


def text(context: LoadContext) -> Text:
    return Text(filled(context, lambda: nn.Embedding(256, WIDTH)))


def denoiser(context: LoadContext) -> Denoiser:
    return Denoiser(filled(context, DenoiserModule))


def nan_denoiser(context: LoadContext) -> NanDenoiser:
    return NanDenoiser(filled(context, DenoiserModule))


def vae(context: LoadContext) -> Vae:
    return Vae(filled(context, lambda: nn.Linear(CHANNELS, 4 * 8 * 8 * 3)))


def filled(context: LoadContext, make: Any) -> Any:
    with torch.device("meta"):
        module = make()
    return context.fill(module)


def returned(**tensors: Tensor) -> ComponentOutput:
    return ComponentOutput(output=CallOutput(tensors=tensors))


def tensor(call: ResolvedCall, name: str) -> Tensor:
    row = call.rows[name]
    assert isinstance(row, Tensor)
    return row


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


class WrongOrder(VaeDecode):
    """Counts its chunks down."""

    def emit(self, old: VaeDecodeState, new: VaeDecodeState) -> tuple[Emission, ...]:
        last = new.total - 2
        return tuple(replace(one, index=last - one.index) for one in super().emit(old, new))


def card(name: str = "good", *, denoise: str = "", decode: str = "", **components: str) -> ModelCard:
    """The card `kit/<name>`; keywords name the parts of this module that it has in place of the sound ones."""
    loads = {"text": "text", "denoiser": "denoiser", "vae": "vae", **components}
    return ModelCard(
        model_id=f"kit/{name}",
        family="kit",
        version="1",
        components={part: ComponentSpec(load=f"{__name__}:{load}") for part, load in loads.items()},
        loops={
            "denoise": LoopSpec(
                loop=f"{__name__}:{denoise}" if denoise else "fv_core.loop.flow_denoise:FlowDenoise",
                semantics=FLOW,
                binds={"denoiser": "denoiser"},
            ),
            "decode": LoopSpec(
                loop=f"{__name__}:{decode}" if decode else "fv_core.loop.vae_decode:VaeDecode",
                semantics="vae.decode/v1",
                binds={"vae": "vae"},
            ),
        },
        programs={TaskType.T2V: text_to_video(encode="text", denoise="denoise", decode="decode")},
        recipe=RecipeSpec(assumes_loop=FLOW, guidance=3.0),
        latent=LatentSpec(channels=CHANNELS),
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
    "Invalid": derive(GOOD, recipe={"assumes_loop": "flow.unknown/v1"}),
}
"""By what is wrong with them."""
