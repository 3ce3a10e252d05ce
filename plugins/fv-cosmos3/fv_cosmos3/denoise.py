"""The joint denoise loop: latents of video, sound and action side by side, each under a sampler state of its own.

Reference: diffusers 0.42.1, `Cosmos3OmniPipeline.__call__` from step 4 to the end of the denoising loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import torch
from torch import Tensor

from fv_core.cache import CacheRef, ValueRef
from fv_core.card import LoopSpec, ModelCard
from fv_core.errors import RequestError
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
from fv_core.loop.policies.guidance import COND, UNCOND, combine
from fv_core.loop.rng import seed_state, torch_normal
from fv_core.loop.samplers.sigmas import schedule
from fv_core.loop.samplers.unipc import UniPCState, unipc_init, unipc_step
from fv_core.loop.work import Row
from fv_core.request import ResolvedRequest, TaskType
from fv_cosmos3.embodiments import EMBODIMENTS

ACTION_TASKS: Final = (TaskType.POLICY, TaskType.FORWARD_DYNAMICS, TaskType.INVERSE_DYNAMICS)
SOUND_TASKS: Final = (TaskType.T2V, TaskType.I2V, TaskType.V2V)
THINKING_TASKS: Final = (*SOUND_TASKS, TaskType.T2I)
STILL_TASKS: Final = (TaskType.T2V, TaskType.T2I)
"""Tasks of which one frame is something to make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointParams:
    """What the latents of sound and action are.

    Args:
        sound_channels: of a sound latent. sample_rate: of the waveform, in Hz. hop: samples per latent.
        action_width: numbers per action latent, of which an embodiment uses the first ones.
    """

    sound_channels: int
    sample_rate: int
    hop: int
    action_width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JointState:
    """Everything that changes while a clip is denoised.

    Args:
        latent: fp32 [C, F, H, W] at sigmas[step], the first `clean` frames given.
        sound: fp32 [D, T]; None without sound.
        action: fp32 [T, D], a reference where actions are given; None outside the action modes.
        samplers: one per modality that is denoised, by the name of its velocity.
        step: steps done. sigmas: fp32 [steps + 1] on the CPU. timesteps: what the model sees, per step.
        cond, uncond: keys and values of the prompts; uncond None without guidance.
        domain: embodiment, "" outside the action modes.
    """

    latent: Tensor
    sound: Tensor | None
    action: Tensor | ValueRef | None
    samplers: Mapping[str, UniPCState]
    step: int
    sigmas: Tensor
    timesteps: tuple[int, ...]
    cond: CacheRef
    uncond: CacheRef | None
    guidance: float
    fps: float
    clean: int
    domain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPrediction:
    """Velocity after guidance and data prediction by modality, fp32 and shaped as the latents."""

    velocities: Mapping[str, Tensor]
    x0s: Mapping[str, Tensor]


class JointDenoise:
    """Role: `denoiser`, op `velocities`; reads caches `cond` and optionally `uncond`, optionally the clean latents
    `condition` and the given `action`; writes `latent`, and `sound` and `action` where there are.

    Rows: video, timestep, fps, clean; sound; action, clean_actions, domain. Outputs: video, sound, action.
    """

    semantics: ClassVar[tuple[str, ...]] = ("flow.unipc2.joint/v1",)
    State: ClassVar[type] = JointState
    Params: ClassVar[type] = JointParams
    request_params: ClassVar[tuple[str, ...]] = ("audio", "domain", "shift", "think")

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        self._card = card
        owner = f"card {card.model_id}"
        self._params = read_params(JointParams, spec.params, owner=owner)
        check_roles(spec, ("denoiser",), owner=owner)
        self._component = spec.binds["denoiser"]

    def total(self, request: ResolvedRequest) -> int:
        """Raises:
        RequestError: FV303, one frame where an input is gone on from; FV310, sound, thinking or an embodiment for a
            task without it, or one too wide for the weights.
        """
        if request.frames == 1 and request.task not in STILL_TASKS:
            raise RequestError(
                "FV303",
                name="frames",
                value=request.frames,
                rule=f"leaves nothing to make of what task {request.task} is given",
                legal="5 and more",
                remedy="Ask for more frames, or for task t2i.",
            )
        if (
            request.params["domain"] != self._card.param_default("domain")
            and request.task not in ACTION_TASKS
        ):
            raise _not_for(request, "domain", ACTION_TASKS)
        for name, tasks in (("audio", SOUND_TASKS), ("think", THINKING_TASKS)):
            if request.params[name] and request.task not in tasks:
                raise _not_for(request, name, tasks)
        if request.task in ACTION_TASKS:
            self._check_width(request)
        return request.steps

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> JointState:
        recipe, acts = self._card.recipe, request.task in ACTION_TASKS
        plan = schedule(recipe.sigma_rule, request.steps, float(request.params["shift"]))
        condition = inputs.get("condition")
        noises = self._noises(request)
        noise = noises.pop("video").to(env.device)
        clean = 0
        if isinstance(condition, Tensor):
            clean = condition.shape[1]
            noise = torch.cat([condition.to(noise), noise[:, clean:]], dim=1)
        given = inputs.get("action")
        if isinstance(given, ValueRef):
            noises.pop("action")
        uncond, sampler = inputs.get(UNCOND), unipc_init(plan.sigmas.to(env.device))
        return JointState(
            latent=noise,
            sound=noises["sound"].to(env.device) if "sound" in noises else None,
            action=noises["action"].to(env.device) if "action" in noises else _reference(given),
            samplers=dict.fromkeys(("video", *noises), sampler),
            step=0,
            sigmas=plan.sigmas,
            timesteps=plan.timesteps,
            cond=_cache(inputs[COND]),
            uncond=None if uncond is None else _cache(uncond),
            guidance=request.guidance,
            fps=request.fps,
            clean=clean,
            domain=str(request.params["domain"]) if acts else "",
        )

    def next(self, state: JointState) -> WorkPlan | Done:
        total = len(state.timesteps)
        if state.step == total:
            return Done()
        calls = [self._call(state, COND, state.cond)]
        if state.uncond is not None:
            calls.append(self._call(state, UNCOND, state.uncond))
        return WorkPlan(
            calls=tuple(calls),
            kind=WorkKind.FLOW_DENOISE,
            step=state.step,
            total=total,
            sigma=float(state.sigmas[state.step]),
        )

    def predict(self, state: JointState, result: StepResult) -> JointPrediction:
        cond, *uncond = (output.tensors for output in result.outputs)
        velocities = {name: cond[name].float() for name in state.samplers}
        if uncond:
            velocities = {
                name: combine(cond_v, uncond[0][name].float(), state.guidance)
                for name, cond_v in velocities.items()
            }
        if "action" in velocities:
            velocities["action"] = _used(velocities["action"], state.domain)
        sigma = state.sigmas[state.step]
        samples = _samples(state)
        x0s = {name: samples[name] - sigma * velocity for name, velocity in velocities.items()}
        return JointPrediction(velocities=velocities, x0s=x0s)

    def update(self, state: JointState, prediction: JointPrediction, result: StepResult) -> JointState:
        samples, samplers = _samples(state), dict(state.samplers)
        for name, sampler in state.samplers.items():
            samples[name], samplers[name] = unipc_step(
                sampler,
                sample=samples[name],
                velocity=prediction.velocities[name],
                x0=prediction.x0s[name],
                step=state.step,
            )
        action = _used(samples["action"], state.domain) if "action" in samples else state.action
        return replace(
            state,
            latent=samples["video"],
            sound=samples.get("sound"),
            action=action,
            samplers=samplers,
            step=state.step + 1,
        )

    def emit(self, old: JointState, new: JointState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: JointState) -> LoopOutputs:
        slots: dict[str, Slot] = {"latent": state.latent}
        if state.sound is not None:
            slots["sound"] = state.sound
        if isinstance(state.action, Tensor):
            slots["action"] = state.action[:, : EMBODIMENTS[state.domain].width]
        return LoopOutputs(slots=slots)

    def _noises(self, request: ResolvedRequest) -> dict[str, Tensor]:
        """Initial noise by modality, drawn in this order from the one stream of the seed."""
        facts = self._params
        shapes: dict[str, tuple[int, ...]] = {
            "video": self._card.geometry(request.size, request.frames).latent
        }
        if request.params["audio"]:
            samples = int(request.frames / request.fps * facts.sample_rate)
            shapes["sound"] = (facts.sound_channels, (samples + facts.hop - 1) // facts.hop)
        if request.task in ACTION_TASKS:
            shapes["action"] = (request.frames - 1, facts.action_width)
        rng, noises = seed_state(request.seed), {}
        for name, shape in shapes.items():
            noises[name], rng = torch_normal(rng, shape)
        if "action" in noises:
            noises["action"] = _used(noises["action"], str(request.params["domain"]))
        return noises

    def _call(self, state: JointState, branch: str, prompt: CacheRef) -> ComponentCall:
        rows: dict[str, Row] = {
            "video": state.latent,
            "timestep": state.timesteps[state.step],
            "fps": state.fps,
            "clean": state.clean,
        }
        if state.sound is not None:
            rows["sound"] = state.sound
        if state.action is not None:
            given = "action" not in state.samplers
            frames = (state.latent.shape[1] - 1) * self._card.latent.temporal
            rows |= {"action": state.action, "clean_actions": frames if given else 0, "domain": state.domain}
        return ComponentCall(
            component=self._component,
            op="velocities",
            rows=rows,
            branch=branch,
            caches=(CacheUse(ref=prompt, mode=CacheMode.READ),),
        )

    def _check_width(self, request: ResolvedRequest) -> None:
        domain, most = str(request.params["domain"]), self._params.action_width
        if EMBODIMENTS[domain].width > most:
            raise RequestError(
                "FV310",
                name="parameter domain",
                value=domain,
                rule=f"has actions of {EMBODIMENTS[domain].width} numbers, the weights have room for {most}",
                legal=", ".join(name for name, one in EMBODIMENTS.items() if one.width <= most),
                remedy="Choose one of these embodiments, or another model.",
            )


def _samples(state: JointState) -> dict[str, Tensor]:
    """The latents that are denoised, by modality."""
    latents = {"video": state.latent, "sound": state.sound, "action": state.action}
    return {name: latent for name, latent in latents.items() if isinstance(latent, Tensor)}


def _used(action: Tensor, domain: str) -> Tensor:
    """The action with the numbers that the embodiment does not have at zero."""
    width = EMBODIMENTS[domain].width
    return torch.cat([action[:, :width], torch.zeros_like(action[:, width:])], dim=1)


def _cache(slot: Slot) -> CacheRef:
    if not isinstance(slot, CacheRef):
        raise TypeError(f"a prompt is a cache of keys and values, got {type(slot).__name__}")
    return slot


def _reference(slot: Slot | None) -> ValueRef | None:
    return slot if isinstance(slot, ValueRef) else None


def _not_for(request: ResolvedRequest, name: str, tasks: tuple[TaskType, ...]) -> RequestError:
    return RequestError(
        "FV310",
        name=f"parameter {name}",
        value=request.params[name],
        rule=f"is not for task {request.task}",
        legal="tasks " + ", ".join(tasks),
        remedy="Leave it out, or choose one of these tasks.",
    )
