"""The joint denoise loop: video and audio latents together, one call of a pipeline per loop.

Reference: diffusers 0.42.1, `LTX2Pipeline.__call__` and `LTX2ImageToVideoPipeline.__call__` from step 4 to the end of
the denoising loop, one sample. Guidance happens in data space, and the way there and back stays even where there is
none: it changes bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from fv_core.loop.inputs import reference, tensor
from fv_core.loop.params import check_roles, read_params
from fv_core.loop.rng import seed_state
from fv_core.request import ResolvedRequest, Size
from fv_ltx2.guidance import COND, ISOLATED, SKIPPED, UNCOND, Scales, branches, combine
from fv_ltx2.packing import Grid, pack, unpack
from fv_ltx2.scales import REQUEST_PARAMS, scales_of
from fv_ltx2.schedule import Shift, fixed, shifted, timesteps
from fv_ltx2.start import noise, renoised, renoised_after_first, with_image

_TEXT: Final = ("text_video", "text_audio", "text_mask")


@dataclass(frozen=True, slots=True, kw_only=True)
class JointParams:
    """Parameters that a card sets.

    Args:
        audio_channels, audio_mel: size of an audio latent frame; audio_rate: audio latent frames per second.
        divisor: the stage works at 1 / divisor of the request's width and height.
        sigmas: the stage's own fixed noise levels without the final 0; () takes the recipe's, and where that has
            none the grid that shifts with the number of tokens.
        refines: whether the stage goes on from the latents of one before.
        image: whether the clip begins with an image: its latent frame is clean and stays as it is.
        skip: index of the block whose self-attention the STG pass skips; -1: there is none.
    """

    audio_channels: int
    audio_mel: int
    audio_rate: float = 25.0
    divisor: int = 1
    sigmas: tuple[float, ...] = ()
    refines: bool = False
    image: bool = False
    skip: int = -1

    def __post_init__(self) -> None:
        if self.refines and not self.sigmas:
            raise ValueError(
                "a stage that refines has sigmas of its own, the first of which says how much is redrawn"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JointState:
    """Everything that changes while a stage runs.

    Args:
        latent: video tokens fp32 [S, C] at sigmas[step].
        audio_latent: audio tokens fp32 [L, D] at the same sigma.
        rng: state of the random stream, after what was drawn.
        step: steps done.
        sigmas: float32 [steps + 1] on the CPU.
        timesteps: what the model sees, per step.
        grid: latent frames, rows and columns.
        fps: frames per second.
        text: references of the embeddings, stacked [negative, positive] with guidance, [positive] without.
        video, audio: guidance of each modality.
    """

    latent: Tensor
    audio_latent: Tensor
    rng: Tensor
    step: int
    sigmas: Tensor
    timesteps: tuple[float, ...]
    grid: Grid
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


class JointDenoise:
    """Role: `denoiser`, op velocity; see `fv_ltx2.transformer.Transformer` for its rows.

    Reads text_video, text_audio and text_mask by reference, and as tensors: image (normalised latent [C, 1, H, W])
    with `image`; latent [C, F, H, W], audio_latent [L, D] (both normalised) and rng with `refines`. Writes latent fp32
    [C, F, H, W] and audio_latent fp32 [L, D], both normalised, and rng, for a stage that goes on with the same stream.
    """

    semantics: ClassVar[tuple[str, ...]] = ("flow.euler.ltx2/v1",)
    State: ClassVar[type] = JointState
    Params: ClassVar[type] = JointParams
    request_params: ClassVar[tuple[str, ...]] = REQUEST_PARAMS

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        self._card = card
        owner = f"card {card.model_id}"
        self._params = read_params(JointParams, spec.params, owner=owner)
        check_roles(spec, ("denoiser",), owner=owner)
        self._component = spec.binds["denoiser"]

    def total(self, request: ResolvedRequest) -> int:
        scales_of(request)
        self._audio_frames(request)
        return len(self._fixed_sigmas()) or request.steps

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> JointState:
        shape = self._card.geometry(self._size(request), request.frames).latent
        video, audio = scales_of(request)
        if self._params.refines:
            latent, audio_latent, rng = self._renoised(inputs)
        else:
            params = self._params
            audio_shape = (params.audio_channels, self._audio_frames(request), params.audio_mel)
            latent, audio_latent, rng = noise(seed_state(request.seed), shape, audio_shape)
            if params.image:
                latent = with_image(latent.to(env.device), tensor(inputs, "image"))
        sigmas = self._sigmas(request, len(latent))
        return JointState(
            latent=latent.to(env.device),
            audio_latent=audio_latent.to(env.device),
            rng=rng,
            step=0,
            sigmas=sigmas,
            timesteps=timesteps(sigmas),
            grid=shape[1:],
            fps=request.fps,
            text={name: reference(inputs, name) for name in _TEXT},
            video=video,
            audio=audio,
        )

    def next(self, state: JointState) -> WorkPlan | Done:
        steps = len(state.timesteps)
        if state.step == steps:
            return Done()
        return WorkPlan(
            calls=tuple(self._velocity(state, branch) for branch in branches(state.video, state.audio)),
            kind=WorkKind.FLOW_DENOISE,
            step=state.step,
            total=steps,
            sigma=float(state.sigmas[state.step]),
        )

    def predict(self, state: JointState, result: StepResult) -> JointPrediction:
        sigma = state.sigmas[state.step].to(state.latent.device)
        x0: dict[str, Tensor] = {}
        audio_x0: dict[str, Tensor] = {}
        for branch, output in zip(branches(state.video, state.audio), result.outputs, strict=True):
            x0[branch] = state.latent - output.tensors["velocity"].float() * sigma
            audio_x0[branch] = state.audio_latent - output.tensors["audio_velocity"].float() * sigma
        guided, audio_guided = combine(x0, state.video), combine(audio_x0, state.audio)
        return JointPrediction(
            velocity=(state.latent - guided) / sigma,
            x0=guided,
            audio_velocity=(state.audio_latent - audio_guided) / sigma,
            audio_x0=audio_guided,
        )

    def update(self, state: JointState, prediction: JointPrediction, result: StepResult) -> JointState:
        change = (state.sigmas[state.step + 1] - state.sigmas[state.step]).to(state.latent.device)
        latent = state.latent + change * prediction.velocity
        if clean := self._clean(state):
            latent = torch.cat([state.latent[:clean], latent[clean:]])
        audio_latent = state.audio_latent + change * prediction.audio_velocity
        return replace(state, latent=latent, audio_latent=audio_latent, step=state.step + 1)

    def emit(self, old: JointState, new: JointState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: JointState) -> LoopOutputs:
        latent = unpack(state.latent, state.grid)
        return LoopOutputs(slots={"latent": latent, "audio_latent": state.audio_latent, "rng": state.rng})

    def _velocity(self, state: JointState, branch: str) -> ComponentCall:
        frames, height, width = state.grid
        guided = UNCOND in branches(state.video, state.audio)
        return ComponentCall(
            component=self._component,
            op="velocity",
            rows={
                "latent": state.latent,
                "audio_latent": state.audio_latent,
                "timestep": state.timesteps[state.step],
                "prompt": int(guided and branch != UNCOND),
                "frames": frames,
                "height": height,
                "width": width,
                "clean": self._clean(state),
                "fps": state.fps,
                **state.text,
            },
            static={
                "skip": self._params.skip if branch == SKIPPED else -1,
                "isolated": branch == ISOLATED,
                "by_channel": self._params.image or not self._params.refines,
            },
            branch=branch,
            group="cfg" if guided and branch in (UNCOND, COND) else None,
        )

    def _renoised(self, inputs: Mapping[str, Slot]) -> tuple[Tensor, Tensor, Tensor]:
        latent, amount, rng = tensor(inputs, "latent"), self._params.sigmas[0], tensor(inputs, "rng")
        if self._params.image:
            tokens, rng = renoised_after_first(latent, amount, rng)
        else:
            tokens, rng = renoised(pack(latent), amount, rng)
        audio_tokens, rng = renoised(tensor(inputs, "audio_latent"), amount, rng)
        return tokens, audio_tokens, rng

    def _clean(self, state: JointState) -> int:
        """Leading tokens that are clean."""
        return state.grid[1] * state.grid[2] if self._params.image else 0

    def _size(self, request: ResolvedRequest) -> Size:
        divisor = self._params.divisor
        return Size(request.size.width // divisor, request.size.height // divisor)

    def _fixed_sigmas(self) -> tuple[float, ...]:
        return self._params.sigmas or self._card.recipe.sigmas

    def _sigmas(self, request: ResolvedRequest, tokens: int) -> Tensor:
        given = self._fixed_sigmas()
        return fixed(given) if given else shifted(request.steps, tokens, Shift())

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
                remedy="Ask for more frames, or for fewer of them per second.",
            )
        return frames
