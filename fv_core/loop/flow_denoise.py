"""The generic flow-matching denoise loop: noise to latent under a sampler, guidance and expert routing.

Reference: diffusers 0.42.1, `WanPipeline.__call__` from step 4 to the end of the denoising loop, one sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import torch
from torch import Tensor

from fv_core.cache import ValueRef
from fv_core.card import LoopSpec, ModelCard
from fv_core.loop.contract import LoopEnv, LoopOutputs, Slot
from fv_core.loop.inputs import reference
from fv_core.loop.outputs import tensor_of
from fv_core.loop.params import check_roles, read_params
from fv_core.loop.policies.experts import HIGH, LOW, expert
from fv_core.loop.policies.guidance import COND, UNCOND, Guidance, branches, combine
from fv_core.loop.rng import seed_state, torch_normal
from fv_core.loop.samplers.sampler import EULER, UNIPC_2, Sampler, SamplerState
from fv_core.loop.samplers.sigmas import TRAIN_TIMESTEPS, schedule, timestep
from fv_core.loop.work import ComponentCall, Done, Emission, StepResult, WorkKind, WorkPlan
from fv_core.request import ResolvedRequest

SAMPLERS: Final[dict[str, Sampler]] = {"flow.euler.cfg/v1": EULER, "flow.unipc2.cfg/v1": UNIPC_2}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowParams:
    """Parameters that a card sets.

    Args:
        cfg: how guidance branches are computed.
        boundary: expert boundary as a fraction of the noise levels, in [0, 1]; None has one denoiser.
        guidance_low: guidance of the low-noise expert, >= 1; None uses the request's.
    """

    cfg: Guidance = Guidance.CLASSIC
    boundary: float | None = None
    guidance_low: float | None = None

    def __post_init__(self) -> None:
        if self.boundary is not None and not 0 <= self.boundary <= 1:
            raise ValueError(f"boundary {self.boundary} is not in [0, 1]")
        if self.guidance_low is not None and not 1 <= self.guidance_low < math.inf:
            raise ValueError(f"guidance_low {self.guidance_low} is not a finite number from 1 up")
        if self.guidance_low is not None and self.boundary is None:
            raise ValueError("guidance_low needs a boundary: one expert has one guidance")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowState:
    """Everything that changes while a latent is denoised.

    Args:
        latent: fp32 [C, F, H, W] at sigmas[step].
        step: steps done.
        sigmas: float32 [steps + 1] on the CPU.
        timesteps: what the model sees, per step.
        sampler: the sampler's own memory.
        cond: prompt embeddings, a tensor where they are trained; uncond: those of the negative prompt, None without
            guidance.
        guidance: scale, >= 1.
    """

    latent: Tensor
    step: int
    sigmas: Tensor
    timesteps: tuple[int, ...]
    sampler: SamplerState
    cond: Tensor | ValueRef
    uncond: ValueRef | None
    guidance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPrediction:
    """What a step's outputs say: velocity after guidance and the data prediction, each [C, F, H, W]."""

    velocity: Tensor
    x0: Tensor


class FlowDenoise:
    """Roles: `denoiser`, and `denoiser_low` with a boundary; op `velocity`.

    Rows: latent [C, F, H, W], timestep (int), text (embeddings [L, D]). Output: velocity [C, F, H, W].
    Reads `cond` and optionally `uncond`; writes `latent`. The initial latent of a seed is diffusers'.
    """

    semantics: ClassVar[tuple[str, ...]] = tuple(SAMPLERS)
    State: ClassVar[type] = FlowState
    Params: ClassVar[type] = FlowParams
    request_params: ClassVar[tuple[str, ...]] = ("shift",)

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        self._card = card
        self._binds = spec.binds
        self._sampler = SAMPLERS[spec.semantics]
        owner = f"card {card.model_id}"
        self._params = read_params(FlowParams, spec.params, owner=owner)
        check_roles(spec, (HIGH,) if self._params.boundary is None else (HIGH, LOW), owner=owner)

    def total(self, request: ResolvedRequest) -> int:
        return request.steps

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> FlowState:
        recipe = self._card.recipe
        plan = schedule(recipe.sigma_rule, request.steps, float(request.params.get("shift", recipe.shift)))
        shape = self._card.geometry(request.size, request.frames).latent
        noise, _ = torch_normal(seed_state(request.seed), shape)
        return FlowState(
            latent=noise.to(env.device),
            step=0,
            sigmas=plan.sigmas,
            timesteps=plan.timesteps,
            sampler=self._sampler.init(plan.sigmas.to(env.device)),
            cond=reference(inputs, COND),
            uncond=reference(inputs, UNCOND) if UNCOND in inputs else None,
            guidance=request.guidance,
        )

    def at(self, latent: Tensor, sigma: float, inputs: Mapping[str, Slot]) -> FlowState:
        cond, sigmas = inputs[COND], torch.tensor([sigma, 0.0])
        return FlowState(
            latent=latent,
            step=0,
            sigmas=sigmas,
            timesteps=(timestep(sigma),),
            sampler=self._sampler.init(sigmas.to(latent.device)),
            cond=cond if isinstance(cond, Tensor) else reference(inputs, COND),
            uncond=None,
            guidance=1.0,
        )

    def next(self, state: FlowState) -> WorkPlan | Done:
        total = len(state.timesteps)
        if state.step == total:
            return Done()
        order = branches(self._params.cfg, state.uncond is not None)
        return WorkPlan(
            calls=tuple(self._call(state, branch) for branch in order),
            kind=WorkKind.FLOW_DENOISE,
            step=state.step,
            total=total,
            sigma=float(state.sigmas[state.step]),
        )

    def predict(self, state: FlowState, result: StepResult) -> FlowPrediction:
        order = branches(self._params.cfg, state.uncond is not None)
        of, shape = f"{self._binds[self._role(state)]}.velocity", state.latent.shape
        by_branch = {
            branch: tensor_of(out, "velocity", of=of, shape=shape)
            for branch, out in zip(order, result.outputs, strict=True)
        }
        velocity = by_branch[COND]
        if UNCOND in by_branch:
            velocity = combine(velocity, by_branch[UNCOND], self._guidance(state))
        sigma = state.sigmas[state.step]  # a 0-d tensor, so that the product keeps the velocity's dtype
        return FlowPrediction(velocity=velocity, x0=state.latent - sigma * velocity)

    def update(self, state: FlowState, prediction: FlowPrediction, result: StepResult) -> FlowState:
        latent, sampler = self._sampler.step(
            state.sampler,
            sample=state.latent,
            velocity=prediction.velocity,
            x0=prediction.x0,
            step=state.step,
        )
        return replace(state, latent=latent, sampler=sampler, step=state.step + 1)

    def emit(self, old: FlowState, new: FlowState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: FlowState) -> LoopOutputs:
        return LoopOutputs(slots={"latent": state.latent})

    def _role(self, state: FlowState) -> str:
        return expert(state.timesteps[state.step], self._params.boundary, TRAIN_TIMESTEPS)

    def _guidance(self, state: FlowState) -> float:
        low = self._params.guidance_low
        return low if low is not None and self._role(state) == LOW else state.guidance

    def _call(self, state: FlowState, branch: str) -> ComponentCall:
        text = state.cond if branch == COND else state.uncond
        assert text is not None
        return ComponentCall(
            component=self._binds[self._role(state)],
            op="velocity",
            rows={"latent": state.latent, "timestep": state.timesteps[state.step], "text": text},
            branch=branch,
            group="cfg" if self._params.cfg is Guidance.JOINT else None,
        )
