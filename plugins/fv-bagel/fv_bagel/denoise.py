"""The loop that makes an image: Euler steps under up to three contexts, guidance inside an interval of noise.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `Bagel.generate_image`, whose `num_timesteps` is fv's steps + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fv_bagel.context import BRANCHES, NO_IMAGE, NO_TEXT, WHOLE
from fv_bagel.grid import unpack
from fv_bagel.guidance import Renorm, guided
from fv_core.cache import CacheRef
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
from fv_core.loop.rng import seed_state, torch_normal
from fv_core.request import ResolvedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiseParams:
    """`patch`: cells of the latent grid to a token, per side."""

    patch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Guided:
    """How a step's velocities are combined; scales from 1 up, 1 is off."""

    text_scale: float
    image_scale: float
    renorm: Renorm
    renorm_min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A context and the position that the image takes after it."""

    context: CacheRef
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageState:
    """Everything that changes while an image is made.

    Args:
        latent: the noisy latent in tokens, fp32 [N, patch * patch * C], at times[step].
        rows: of tokens. step: steps done.
        times: fp32 [steps + 1] on the CPU, from 1 to 0.
        branches: of each step, those that it combines.
    """

    latent: Tensor
    rows: int
    step: int
    times: Tensor
    branches: tuple[tuple[str, ...], ...]
    conditions: Mapping[str, Condition]
    guidance: Guided


class DenoiseImage:
    """Role: `model`; op `velocity`: rows tokens, time (float), position and rows (int), reading one context.

    Reads `context`, `no_text` and `no_image`, of each the position (`context_position`), and optionally `rng`, a
    generator's state to go on with; writes `latent` fp32 [C, 1, H, W]. The request's guidance is that by text.
    """

    semantics: ClassVar[tuple[str, ...]] = ("flow.euler.contexts/v1",)
    State: ClassVar[type] = ImageState
    Params: ClassVar[type] = DenoiseParams
    request_params: ClassVar[tuple[str, ...]] = (
        "shift",
        "image_guidance",
        "interval_low",
        "interval_high",
        "renorm",
        "renorm_min",
    )

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        owner = f"card {card.model_id}"
        self._patch = read_params(DenoiseParams, spec.params, owner=owner).patch
        check_roles(spec, ("model",), owner=owner)
        self._card = card
        self._component = spec.binds["model"]

    def total(self, request: ResolvedRequest) -> int:
        """Raises:
        RequestError: FV310, the interval of guidance is empty.
        """
        low, high = (float(request.params[name]) for name in ("interval_low", "interval_high"))
        if low >= high and request.guidance > 1:
            raise RequestError(
                "FV310",
                name="parameter interval_low",
                value=low,
                rule=f"leaves no time to guide: the interval ends at {high:g}",
                legal="less than interval_high",
                remedy="Widen the interval, or set guidance to 1 to have none.",
            )
        return request.steps

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> ImageState:
        channels, _, height, width = self._card.geometry(request.size, request.frames).latent
        rows, columns = height // self._patch, width // self._patch
        rng = inputs.get("rng", seed_state(request.seed))
        assert isinstance(rng, Tensor)
        noise, _ = torch_normal(rng, (rows * columns, channels * self._patch**2))
        params = request.params
        grid = times(request.steps, float(params["shift"]))
        return ImageState(
            latent=noise.to(env.device),
            rows=rows,
            step=0,
            times=grid,
            branches=_branches(request, grid),
            conditions={branch: _condition(branch, inputs) for branch in BRANCHES},
            guidance=Guided(
                text_scale=request.guidance,
                image_scale=float(params["image_guidance"]),
                renorm=Renorm(str(params["renorm"])),
                renorm_min=float(params["renorm_min"]),
            ),
        )

    def next(self, state: ImageState) -> WorkPlan | Done:
        total = len(state.times) - 1
        if state.step == total:
            return Done()
        time = float(state.times[state.step])
        return WorkPlan(
            calls=tuple(self._call(state, branch, time) for branch in self._computed(state)),
            kind=WorkKind.FLOW_DENOISE,
            step=state.step,
            total=total,
            sigma=time,
        )

    def predict(self, state: ImageState, result: StepResult) -> Tensor:
        """The guided velocity [N, patch * patch * C]."""
        computed = {
            branch: output.tensors["velocity"]
            for branch, output in zip(self._computed(state), result.outputs, strict=True)
        }
        branches = state.branches[state.step]
        if branches == (WHOLE,):
            return computed[WHOLE]
        by_condition = {state.conditions[branch]: velocity for branch, velocity in computed.items()}
        velocity = {branch: by_condition[state.conditions[branch]] for branch in branches}
        how = state.guidance
        return guided(
            velocity[WHOLE],
            velocity[NO_TEXT],
            velocity.get(NO_IMAGE),
            text_scale=how.text_scale,
            image_scale=how.image_scale,
            renorm=how.renorm,
            renorm_min=how.renorm_min,
        )

    def update(self, state: ImageState, prediction: Tensor, result: StepResult) -> ImageState:
        # A 0-d tensor, so that the product keeps the velocity's precision.
        length = (state.times[state.step] - state.times[state.step + 1]).to(state.latent.device)
        return replace(state, latent=state.latent - prediction * length, step=state.step + 1)

    def emit(self, old: ImageState, new: ImageState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: ImageState) -> LoopOutputs:
        return LoopOutputs(slots={"latent": unpack(state.latent, self._patch, state.rows).unsqueeze(1)})

    def _computed(self, state: ImageState) -> tuple[str, ...]:
        """Those of them that differ: an image made from text alone has one context with and without images."""
        first = {state.conditions[branch]: branch for branch in reversed(state.branches[state.step])}
        return tuple(branch for branch in BRANCHES if branch in first.values())

    def _call(self, state: ImageState, branch: str, time: float) -> ComponentCall:
        condition = state.conditions[branch]
        return ComponentCall(
            component=self._component,
            op="velocity",
            rows={
                "tokens": state.latent,
                "time": time,
                "position": condition.position,
                "rows": state.rows,
            },
            branch=branch,
            caches=(CacheUse(ref=condition.context, mode=CacheMode.READ),),
        )


def times(steps: int, shift: float) -> Tensor:
    """The shifted grid from 1 to 0, fp32 [steps + 1] on the CPU."""
    grid = torch.linspace(1, 0, steps + 1)
    return shift * grid / (1 + (shift - 1) * grid)


def _branches(request: ResolvedRequest, grid: Tensor) -> tuple[tuple[str, ...], ...]:
    """Of each step the branches that it combines: all of them only inside the interval of guidance.

    Times are compared in their own precision, so that a bound of 0.4 is met by a time of 0.4.
    """
    low, high = (float(request.params[name]) for name in ("interval_low", "interval_high"))
    inside = (grid[:-1] > low) & (grid[:-1] <= high)
    guided = BRANCHES if float(request.params["image_guidance"]) > 1 else (WHOLE, NO_TEXT)
    return tuple(guided if on and request.guidance > 1 else (WHOLE,) for on in inside.tolist())


def _condition(branch: str, inputs: Mapping[str, Slot]) -> Condition:
    context, position = inputs.get(branch), inputs.get(f"{branch}_position")
    if not isinstance(context, CacheRef) or not isinstance(position, int):
        raise ValueError(f"condition {branch} is missing: an image is made from a context and its position")
    if branch != NO_TEXT and context.version == 0:
        raise ValueError(f"condition {branch} is empty: there is nothing to make an image of")
    return Condition(context=context, position=position)
