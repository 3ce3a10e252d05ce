"""The generic chunk rollout: a causal model makes a clip chunk after chunk, each from noise in a few renoising steps.

Reference: Self-Forcing at 33593df3, `CausalInferencePipeline.inference`, one sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fv_core.cache import CacheRef, ValueRef
from fv_core.card import LoopSpec, ModelCard
from fv_core.errors import CardError, RequestError
from fv_core.loop.chunks import Cutting
from fv_core.loop.contract import LoopEnv, LoopOutputs, Slot
from fv_core.loop.inputs import reference, tensor
from fv_core.loop.outputs import tensor_of
from fv_core.loop.params import check_roles, read_params
from fv_core.loop.rng import seed_state, torch_normal
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
from fv_core.request import Numerics, ResolvedRequest

_TRAIN_TIMESTEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkParams:
    """Parameters that a card sets. All lengths are latent frames.

    Args:
        chunk: frames of a chunk.
        first_frame: whether the first frame is a chunk of its own.
        window: how many frames a chunk attends, its own included; None attends all.
        sink: how many frames at the beginning of the clip never leave the window.
        trained: the longest clip that the weights were made for; None: not stated.
        context_noise: timestep at which a finished chunk's keys and values are computed; those of a given one, at 0.
    """

    chunk: int
    first_frame: bool = False
    window: int | None = None
    sink: int = 0
    trained: int | None = None
    context_noise: float = 0.0

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.sink < 0 or self.context_noise < 0:
            raise ValueError("chunk is at least 1, sink and context_noise at least 0")
        if self.window is None and self.sink:
            raise ValueError("sink needs a window: without one every frame stays")
        if self.window is not None and self.window < self.sink + self.chunk:
            raise ValueError(f"window {self.window} does not hold the sink and a chunk")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkState:
    """Everything that changes while a clip is made.

    Args:
        latent: the chunk at work [C, f, H, W]; noise, then cleaner each turn.
        ahead: what the chunks after it begin with, [C, F, H, W]: frames that are given, then noise.
        sizes: frames of each chunk; given: how many of them, from the first, are given rather than made.
        chunk: index of the chunk at work; turn: 0 .. steps - 1 denoise it, `steps` commits it to the window.
        step: steps done, of `total`.
        rng: state of the stream that the next noise comes from.
        prompt: embeddings.
        text: keys and values of the prompt, class `text_kv`; version 0 until step 0 has computed them.
        window: keys and values of the finished chunks, class `slab_kv`.
        done: finished chunks [C, f, H, W].
    """

    latent: Tensor
    ahead: Tensor
    sizes: tuple[int, ...]
    given: int
    chunk: int
    turn: int
    step: int
    total: int
    rng: Tensor
    prompt: ValueRef
    text: CacheRef
    window: CacheRef
    done: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPrediction:
    """What a step's outputs say of the chunk: velocity and data prediction, [C, f, H, W]; step 0 says neither."""

    velocity: Tensor | None
    x0: Tensor | None


class ChunkRollout:
    """Role: `denoiser`. Reads `cond` and optionally the tensor `prefix` [C, P, H, W], frames that the clip goes on
    from; writes `latent` [C, F, H, W], the prefix included, and emits it chunk by chunk.

    Step 0 is op `text` (row text, the cache `text_kv` appended). Then, for each chunk, ops `velocity`, which read
    the window, and one op `commit`, which appends the finished chunk's keys and values; a given chunk is committed
    only. Rows of both: latent, timestep, start (absolute index of the chunk's first frame), sink and recent (how many
    frames at the beginning and at the end of the window the chunk attends; others are evicted), times (how many rows
    the timestep is computed in: one per frame, or 1); output: velocity. Nothing is static, so that clips may share a
    forward wherever each of them is.

    Noise is one stream, of the whole clip first and then of each renoising, in layout [f, C, H, W].
    """

    semantics: ClassVar[tuple[str, ...]] = ("causal.renoise/v1",)
    State: ClassVar[type] = ChunkState
    Params: ClassVar[type] = ChunkParams
    request_params: ClassVar[tuple[str, ...]] = ()

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        owner = f"card {card.model_id}"
        self._card = card
        self._params = read_params(ChunkParams, spec.params, owner=owner)
        check_roles(spec, ("denoiser",), owner=owner)
        self._component = spec.binds["denoiser"]
        self._sigmas = _sigmas(card)
        self._timesteps = tuple(torch.tensor(self._sigmas).mul(_TRAIN_TIMESTEPS).tolist())
        self._cutting = Cutting(
            chunk=self._params.chunk, first_frame=self._params.first_frame, trained=self._params.trained
        )

    def total(self, request: ResolvedRequest) -> int:
        frames = self._card.geometry(request.size, request.frames).latent[1]
        if request.numerics is Numerics.REFERENCE:
            self._cutting.check(frames, self._clip_frames)
        sizes, _ = self._cutting.sizes(frames)
        # A prefix takes fewer steps than what it stands for, but may cut one more chunk short.
        return self._total(len(sizes), 0) + bool(request.inputs)

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> ChunkState:
        shape = self._card.geometry(request.size, request.frames).latent
        prefix = self._prefix(request, tensor(inputs, "prefix"), shape) if "prefix" in inputs else None
        given = 0 if prefix is None else prefix.shape[1]
        sizes, given_chunks = self._cutting.sizes(shape[1], given)
        noise, rng = _noise(seed_state(request.seed), (shape[0], shape[1] - given, *shape[2:]))
        ahead = noise.to(env.device)
        ahead = ahead if prefix is None else torch.cat([prefix.to(ahead), ahead], dim=1)
        return ChunkState(
            latent=ahead[:, : sizes[0]],
            ahead=ahead[:, sizes[0] :],
            sizes=sizes,
            given=given_chunks,
            chunk=0,
            turn=len(self._sigmas) if given_chunks else 0,
            step=0,
            total=self._total(len(sizes), given_chunks),
            rng=rng,
            prompt=reference(inputs, "cond"),
            text=env.cache("text_kv", "text"),
            window=env.cache("slab_kv", "window"),
            done=(),
        )

    def next(self, state: ChunkState) -> WorkPlan | Done:
        if state.chunk == len(state.sizes):
            return Done()
        begun, commits = _has_text(state), state.turn == len(self._sigmas)
        return WorkPlan(
            calls=(self._call(state) if begun else self._text(state),),
            kind=WorkKind.CHUNK_ROLLOUT,
            step=state.step,
            total=state.total,
            sigma=self._sigmas[state.turn] if begun and not commits else None,
        )

    def predict(self, state: ChunkState, result: StepResult) -> ChunkPrediction:
        if not _has_text(state):
            return ChunkPrediction(velocity=None, x0=None)
        commits = state.turn == len(self._sigmas)
        of = f"{self._component}.{'commit' if commits else 'velocity'}"
        velocity = tensor_of(result.outputs[0], "velocity", of=of, shape=state.latent.shape)
        if commits:
            return ChunkPrediction(velocity=velocity, x0=state.latent)
        clean = state.latent.double() - self._sigmas[state.turn] * velocity.double()
        return ChunkPrediction(velocity=velocity, x0=clean.to(velocity.dtype))

    def update(self, state: ChunkState, prediction: ChunkPrediction, result: StepResult) -> ChunkState:
        first = result.caches[0][0]
        state = replace(state, step=state.step + 1)
        if not _has_text(state):
            return replace(state, text=first)
        if state.turn == len(self._sigmas):
            return self._committed(state, first)
        assert prediction.x0 is not None
        turn = state.turn + 1
        if turn == len(self._sigmas):
            return replace(state, latent=prediction.x0, turn=turn)
        latent, rng = _renoised(prediction.x0, self._sigmas[turn], state.rng)
        return replace(state, latent=latent, rng=rng, turn=turn)

    def emit(self, old: ChunkState, new: ChunkState) -> tuple[Emission, ...]:
        final = (*new.done, new.latent)
        return tuple(
            Emission(output="latent", index=index, tensor=final[index])
            for index in range(self._final(old), self._final(new))
        )

    def finalize(self, state: ChunkState) -> LoopOutputs:
        return LoopOutputs(slots={"latent": torch.cat(state.done, dim=1)})

    def _committed(self, state: ChunkState, window: CacheRef) -> ChunkState:
        following = state.chunk + 1
        size = state.sizes[following] if following < len(state.sizes) else 0
        return replace(
            state,
            latent=state.ahead[:, :size],
            ahead=state.ahead[:, size:],
            chunk=following,
            turn=len(self._sigmas) if following < state.given else 0,
            window=window,
            done=(*state.done, state.latent),
        )

    def _final(self, state: ChunkState) -> int:
        """How many chunks have their final latent."""
        return state.chunk + (state.turn == len(self._sigmas)) if _has_text(state) else 0

    def _text(self, state: ChunkState) -> ComponentCall:
        return ComponentCall(
            component=self._component,
            op="text",
            rows={"text": state.prompt},
            caches=(CacheUse(ref=state.text, mode=CacheMode.APPEND, shared=True),),
        )

    def _call(self, state: ChunkState) -> ComponentCall:
        commits, size = state.turn == len(self._sigmas), state.sizes[state.chunk]
        start, sink = sum(state.sizes[: state.chunk]), self._params.sink
        recent = start if self._params.window is None else self._params.window - sink - size
        given = state.chunk < state.given
        committed_at = 0.0 if given else self._params.context_noise
        return ComponentCall(
            component=self._component,
            op="commit" if commits else "velocity",
            rows={
                "latent": state.latent,
                "timestep": committed_at if commits else self._timesteps[state.turn],
                "start": start,
                "sink": sink,
                "recent": recent,
                "times": 1 if given else size,
            },
            caches=(
                CacheUse(ref=state.window, mode=CacheMode.APPEND if commits else CacheMode.READ),
                CacheUse(ref=state.text, mode=CacheMode.READ),
            ),
        )

    def _prefix(self, request: ResolvedRequest, slot: Tensor, shape: tuple[int, ...]) -> Tensor:
        if (slot.shape[0], *slot.shape[2:]) != (shape[0], *shape[2:]):
            raise TypeError(f"the prefix of shape {list(slot.shape)} does not lie on the grid {list(shape)}")
        given, whole = slot.shape[1], self._cutting.is_whole(slot.shape[1])
        if given >= shape[1] or (request.numerics is Numerics.REFERENCE and not whole):
            rule = "leaves nothing to make" if given >= shape[1] else "ends within a chunk"
            raise RequestError(
                "FV303",
                name="frames to go on from",
                value=self._clip_frames(given),
                rule=f"{rule}, with {request.frames} frames asked for under {request.numerics} numerics",
                legal=f"fewer than {request.frames}, and whole chunks under reference numerics",
                remedy="Shorten the input, or ask for more frames.",
            )
        return slot

    def _total(self, chunks: int, given: int) -> int:
        return 1 + given + (chunks - given) * (len(self._sigmas) + 1)

    def _clip_frames(self, latent_frames: int) -> int:
        return (latent_frames - 1) * self._card.latent.temporal + 1


def _has_text(state: ChunkState) -> bool:
    return state.text.version > 0


def _noise(rng: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Noise [C, f, H, W], drawn frame by frame."""
    channels, frames, height, width = shape
    noise, rng = torch_normal(rng, (frames, channels, height, width))
    return noise.transpose(0, 1).contiguous(), rng


def _renoised(x0: Tensor, sigma: float, rng: Tensor) -> tuple[Tensor, Tensor]:
    noise, rng = _noise(rng, tuple(x0.shape))
    noise = noise.to(x0)
    level = torch.full((1, 1, 1, 1), sigma, device=x0.device)  # not 0-d, so that the mix is in fp32
    return ((1 - level) * x0 + level * noise).to(x0.dtype), rng


def _sigmas(card: ModelCard) -> tuple[float, ...]:
    if not card.recipe.sigmas:
        raise CardError(
            "FV206",
            name=f"card {card.model_id}: recipe.sigmas",
            rule="are not given; chunks are made at the noise levels that the weights were distilled to",
            remedy="State them in RecipeSpec.sigmas.",
        )
    return card.recipe.sigmas
