"""The joint denoise loop: video and audio latents together, one call of a pipeline per loop.

Reference: diffusers 0.42.1, `LTX2Pipeline.__call__` and `LTX2ImageToVideoPipeline.__call__` from step 4 to the end of
the denoising loop, one sample. Guidance happens in data space, and the way there and back stays even where there is
none: it changes bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import torch
from torch import Tensor

from fv_core.cache import ValueRef
from fv_core.card import LoopSpec, ModelCard
from fv_core.errors import RequestError
from fv_core.loop import (
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
from fv_core.loop.rng import seed_state
from fv_core.request import ResolvedRequest, Size
from fv_ltx2.guidance import COND, ISOLATED, SKIPPED, UNCOND, Scales, branches, combine
from fv_ltx2.packing import Grid, unpack
from fv_ltx2.scales import REQUEST_PARAMS, scales_of
from fv_ltx2.schedule import Shift, fixed, shifted, timestep
from fv_ltx2.start import Start, noise, renoised, renoised_video, with_image

SEMANTICS: Final = "flow.euler.ltx2/v1"

_TEXT: Final = ("text_video", "text_audio", "text_mask")


@dataclass(frozen=True, slots=True, kw_only=True)
class JointParams:
    """Parameters that a card sets.

    Args:
        start: what the first latents are made of.
        divisor: the stage works at 1 / divisor of the request's width and height.
        sigmas: the stage's own fixed noise levels without the final 0; () takes the recipe's, and where that has
            none the grid that shifts with the number of tokens.
        audio_channels, audio_mel: size of an audio latent frame; audio_rate: audio latent frames per second.
        skip: index of the block whose self-attention the STG pass skips; -1: there is none.
    """

    audio_channels: int
    audio_mel: int
    start: Start = Start.NOISE
    divisor: int = 1
    sigmas: tuple[float, ...] = ()
    audio_rate: float = 25.0
    skip: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JointState:
    """Everything that changes while a stage runs.

    Args:
        latent: video tokens fp32 [S, C] at sigmas[step]; None until the stage has its start.
        audio_latent: audio tokens fp32 [L, D] at the same sigma; None likewise.
        rng: state of the random stream, after what was drawn.
        source: rows of the call that the stage begins with; {} where it begins from noise alone.
        step: denoising steps done.
        sigmas: float32 [steps + 1] on the CPU.
        grid: latent frames, rows and columns.
        clean: leading tokens that are clean and stay so.
        fps: frames per second.
        text: references of the embeddings, stacked [negative, positive] with guidance, [positive] without.
        video, audio: guidance of each modality.
    """

    latent: Tensor | None
    audio_latent: Tensor | None
    rng: Tensor
    source: Mapping[str, ValueRef | Tensor | int]
    step: int
    sigmas: Tensor
    grid: Grid
    clean: int
    fps: float
    text: Mapping[str, ValueRef]
    video: Scales
    audio: Scales


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPrediction:
    """What a step's outputs say after guidance: velocities and data predictions, tokens [S, C] and [L, D]."""

    velocity: Tensor
    x0: Tensor
    audio_velocity: Tensor
    audio_x0: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What the first call of a stage returned: the image's latent, or the normalised latents of the stage before."""

    found: Mapping[str, Tensor] = field(default_factory=dict)


class JointDenoise:
    """Roles: `denoiser` (op velocity) and, by start, `vae` (op encode) or `statistics` (op normalise).

    Reads text_video, text_audio and text_mask; by start image, or latent, audio_latent (not normalised) and rng.
    Writes latent fp32 [C, F, H, W] and audio_latent fp32 [L, C * M], both normalised, and rng, for a stage that goes
    on with the same random stream.
    """

    semantics: ClassVar[tuple[str, ...]] = (SEMANTICS,)
    State: ClassVar[type] = JointState
    Params: ClassVar[type] = JointParams
    request_params: ClassVar[tuple[str, ...]] = REQUEST_PARAMS

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        self._card = card
        self._binds = spec.binds
        owner = f"card {card.model_id}"
        self._params = read_params(JointParams, spec.params, owner=owner)
        role = self._params.start.role
        check_roles(spec, ("denoiser",) if role is None else ("denoiser", role), owner=owner)

    def total(self, request: ResolvedRequest) -> int:
        scales_of(request)
        self._audio_frames(request)
        steps = len(self._fixed_sigmas()) or request.steps
        return steps + int(self._params.start is not Start.NOISE)

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> JointState:
        shape = self._shape(request)
        grid = shape[1:]
        video, audio = scales_of(request)
        state = JointState(
            latent=None,
            audio_latent=None,
            rng=_rng(request, inputs),
            source=self._source(request, inputs),
            step=0,
            sigmas=self._sigmas(request, grid),
            grid=grid,
            clean=grid[1] * grid[2] if self._params.start.keeps_first_frame else 0,
            fps=request.fps,
            text={name: _reference(inputs, name) for name in _TEXT},
            video=video,
            audio=audio,
        )
        if self._params.start in (Start.LATENT, Start.IMAGE_LATENT):
            return state
        params = self._params
        drawn = noise(state.rng, shape, (params.audio_channels, self._audio_frames(request), params.audio_mel))
        latent, audio_latent = (tokens.to(env.device) for tokens in drawn[:2])
        return replace(state, latent=latent, audio_latent=audio_latent, rng=drawn[2])

    def next(self, state: JointState) -> WorkPlan | Done:
        steps = len(state.sigmas) - 1
        if state.step == steps:
            return Done()
        first = int(self._params.start is not Start.NOISE)
        if state.source:
            return WorkPlan(calls=(self._begin(state),), kind=WorkKind.COMPONENT, step=0, total=steps + first)
        return WorkPlan(
            calls=tuple(self._velocity(state, branch) for branch in branches(state.video, state.audio)),
            kind=WorkKind.FLOW_DENOISE,
            step=state.step + first,
            total=steps + first,
            sigma=float(state.sigmas[state.step]),
        )

    def predict(self, state: JointState, result: StepResult) -> JointPrediction | Begun:
        if state.source:
            return Begun(found=result.outputs[0].tensors)
        latent, audio_latent = _latents(state)
        sigma = state.sigmas[state.step].to(latent.device)
        x0: dict[str, Tensor] = {}
        audio_x0: dict[str, Tensor] = {}
        for branch, output in zip(branches(state.video, state.audio), result.outputs, strict=True):
            x0[branch] = latent - output.tensors["velocity"].float() * sigma
            audio_x0[branch] = audio_latent - output.tensors["audio_velocity"].float() * sigma
        guided, audio_guided = combine(x0, state.video), combine(audio_x0, state.audio)
        return JointPrediction(
            velocity=(latent - guided) / sigma,
            x0=guided,
            audio_velocity=(audio_latent - audio_guided) / sigma,
            audio_x0=audio_guided,
        )

    def update(
        self, state: JointState, prediction: JointPrediction | Begun, result: StepResult
    ) -> JointState:
        if isinstance(prediction, Begun):
            return replace(self._begun(state, prediction.found), source={})
        latent, audio_latent = _latents(state)
        change = (state.sigmas[state.step + 1] - state.sigmas[state.step]).to(latent.device)
        moved = latent + change * prediction.velocity
        if state.clean:
            moved = torch.cat([latent[: state.clean], moved[state.clean :]])
        audio_latent = audio_latent + change * prediction.audio_velocity
        return replace(state, latent=moved, audio_latent=audio_latent, step=state.step + 1)

    def emit(self, old: JointState, new: JointState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: JointState) -> LoopOutputs:
        latent, audio_latent = _latents(state)
        return LoopOutputs(
            slots={"latent": unpack(latent, state.grid), "audio_latent": audio_latent, "rng": state.rng}
        )

    def _begin(self, state: JointState) -> ComponentCall:
        role = self._params.start.role
        assert role is not None
        op = "encode" if self._params.start is Start.IMAGE else "normalise"
        return ComponentCall(component=self._binds[role], op=op, rows=state.source)

    def _begun(self, state: JointState, found: Mapping[str, Tensor]) -> JointState:
        latent = found["latent"]
        if self._params.start is Start.IMAGE:
            assert state.latent is not None
            return replace(state, latent=with_image(state.latent, latent))
        amount, keep = float(self._fixed_sigmas()[0]), self._params.start.keeps_first_frame
        tokens, rng = renoised_video(latent, amount, state.rng, keep_first=keep)
        audio_tokens, rng = renoised(found["audio_latent"], amount, rng)
        return replace(state, latent=tokens, audio_latent=audio_tokens, rng=rng)

    def _velocity(self, state: JointState, branch: str) -> ComponentCall:
        latent, audio_latent = _latents(state)
        frames, height, width = state.grid
        guided = UNCOND in branches(state.video, state.audio)
        return ComponentCall(
            component=self._binds["denoiser"],
            op="velocity",
            rows={
                "latent": latent,
                "audio_latent": audio_latent,
                "timestep": timestep(state.sigmas[state.step]),
                "prompt": int(guided and branch != UNCOND),
                "frames": frames,
                "height": height,
                "width": width,
                "clean": state.clean,
                "fps": state.fps,
                **state.text,
            },
            static={
                "skip": self._params.skip if branch == SKIPPED else -1,
                "isolated": branch == ISOLATED,
            },
            branch=branch,
            group="cfg" if guided and branch in (UNCOND, COND) else None,
        )

    def _source(
        self, request: ResolvedRequest, inputs: Mapping[str, Slot]
    ) -> dict[str, ValueRef | Tensor | int]:
        match self._params.start:
            case Start.NOISE:
                return {}
            case Start.IMAGE:
                size = self._size(request)
                return {"image": _reference(inputs, "image"), "width": size.width, "height": size.height}
        return {name: _reference(inputs, name) for name in ("latent", "audio_latent")}

    def _size(self, request: ResolvedRequest) -> Size:
        divisor = self._params.divisor
        return Size(request.size.width // divisor, request.size.height // divisor)

    def _shape(self, request: ResolvedRequest) -> tuple[int, int, int, int]:
        return self._card.geometry(self._size(request), request.frames).latent

    def _fixed_sigmas(self) -> tuple[float, ...]:
        return self._params.sigmas or self._card.recipe.sigmas

    def _sigmas(self, request: ResolvedRequest, grid: Grid) -> Tensor:
        if given := self._fixed_sigmas():
            return fixed(given)
        return shifted(request.steps, grid[0] * grid[1] * grid[2], Shift())

    def _audio_frames(self, request: ResolvedRequest) -> int:
        """Audio latent frames of the clip.

        Raises:
            RequestError: FV307, the clip is too short to have one.
        """
        frames = round(request.frames / request.fps * self._params.audio_rate)
        if frames < 1:
            raise RequestError(
                "FV307",
                name="fps",
                value=request.fps,
                rule=f"makes a clip of {request.frames} frames too short for sound",
                legal=f"less than {2 * request.frames * self._params.audio_rate:g} for that many frames",
                remedy="Ask for more frames, or fewer of them per second.",
            )
        return frames


def _rng(request: ResolvedRequest, inputs: Mapping[str, Slot]) -> Tensor:
    """The stream of the stage before, or a new one from the seed."""
    rng = inputs.get("rng", seed_state(request.seed))
    if not isinstance(rng, Tensor):
        raise TypeError(f"the state of a random stream is a tensor, got {type(rng).__name__}")
    return rng


def _reference(inputs: Mapping[str, Slot], name: str) -> ValueRef:
    slot = inputs[name]
    if not isinstance(slot, ValueRef):
        raise TypeError(f"{name} is stored once and passed by reference, got {type(slot).__name__}")
    return slot


def _latents(state: JointState) -> tuple[Tensor, Tensor]:
    assert state.latent is not None and state.audio_latent is not None, "the stage has begun"
    return state.latent, state.audio_latent
