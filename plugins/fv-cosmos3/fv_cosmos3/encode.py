"""Encoding an input's frames to clean latents, chunk by chunk: one frame first, then as many as a latent frame holds.

Only frames that condition the clip are encoded: the encoder is causal, so those after them change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

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
from fv_core.loop.work import Row
from fv_core.request import ResolvedRequest, TaskType
from fv_cosmos3.embodiments import canvas

_FITS = ("cover", "stretch", "canvas")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeParams:
    """`fit`: cover (an image, scaled and cut), stretch (a video, scaled), canvas (a view, padded, never scaled)."""

    fit: str

    def __post_init__(self) -> None:
        if self.fit not in _FITS:
            raise ValueError(f"fit {self.fit} is none of {', '.join(_FITS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeState:
    """Everything that changes while an input is encoded.

    Args:
        media: uint8 [H, W, 3] or [F, H, W, 3]. width, height: of the clip. count: frames to encode.
        keep: which end of a longer video is taken. tier: of the canvas.
        pixels: fp32 [3, count, H, W] in [-1, 1]; None before the first step.
        cache: the encoder's features. features: of the chunks so far, [C, n, h, w]; None before the first.
        latent: fp32 [C, T, h, w]; None before the last step.
    """

    media: ValueRef
    width: int
    height: int
    count: int
    keep: str
    tier: str
    pixels: Tensor | None
    cache: CacheRef
    features: Tensor | None
    latent: Tensor | None


class VaeEncode:
    """Role: `vae`. Reads `media`, writes `latent`: the clean latent frames fp32 [C, T, h, w].

    Step 0 is op `pixels`, step i op `encode` of chunk i - 1 (one `stream` cache appended), the last one op `latent`.
    """

    semantics: ClassVar[tuple[str, ...]] = ("vae.encode/v1",)
    State: ClassVar[type] = EncodeState
    Params: ClassVar[type] = EncodeParams
    request_params: ClassVar[tuple[str, ...]] = ("condition_frames", "keep", "tier")

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        owner = f"card {card.model_id}"
        self._group = card.latent.temporal
        self._fit = read_params(EncodeParams, spec.params, owner=owner).fit
        check_roles(spec, ("vae",), owner=owner)
        self._component = spec.binds["vae"]

    def total(self, request: ResolvedRequest) -> int:
        """Raises:
        RequestError: FV302 the size is beyond the canvas, FV310 there are more clean frames than frames.
        """
        if self._fit == "canvas":
            _check_canvas(request)
        count = self._count(request)
        if count > request.frames:
            raise _too_many(request, self._group)
        return 2 + self._chunks(count)

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> EncodeState:
        media = inputs["media"]
        if not isinstance(media, ValueRef):
            raise TypeError(f"media is a reference to a tensor, got {type(media).__name__}")
        return EncodeState(
            media=media,
            width=request.size.width,
            height=request.size.height,
            count=self._count(request),
            keep=str(request.params["keep"]),
            tier=str(request.params["tier"]),
            pixels=None,
            cache=env.cache("stream", "features"),
            features=None,
            latent=None,
        )

    def next(self, state: EncodeState) -> WorkPlan | Done:
        if state.latent is not None:
            return Done()
        chunks = self._chunks(state.count)
        step = _encoded(state) + int(state.pixels is not None)
        if state.pixels is None:
            call = self._fitted(state)
        elif state.features is None or _encoded(state) < chunks:
            call = self._chunk(state, state.pixels)
        else:
            rows: dict[str, Row] = {"features": state.features, **_size(state)}
            call = ComponentCall(component=self._component, op="latent", rows=rows)
        return WorkPlan(calls=(call,), kind=WorkKind.COMPONENT, step=step, total=2 + chunks)

    def predict(self, state: EncodeState, result: StepResult) -> Tensor:
        (tensor,) = result.outputs[0].tensors.values()
        return tensor

    def update(self, state: EncodeState, prediction: Tensor, result: StepResult) -> EncodeState:
        if state.pixels is None:
            return replace(state, pixels=prediction)
        if _encoded(state) < self._chunks(state.count):
            features = (
                prediction if state.features is None else torch.cat([state.features, prediction], dim=1)
            )
            return replace(state, cache=result.caches[0][0], features=features)
        return replace(state, latent=prediction)

    def emit(self, old: EncodeState, new: EncodeState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: EncodeState) -> LoopOutputs:
        assert state.latent is not None
        return LoopOutputs(slots={"latent": state.latent})

    def _count(self, request: ResolvedRequest) -> int:
        if request.task is TaskType.V2V:
            return (int(request.params["condition_frames"]) - 1) * self._group + 1
        return request.frames if request.task is TaskType.INVERSE_DYNAMICS else 1

    def _chunks(self, count: int) -> int:
        return 1 + (count - 1) // self._group

    def _fitted(self, state: EncodeState) -> ComponentCall:
        rows: dict[str, Row] = {
            "media": state.media,
            "count": state.count,
            "keep": state.keep,
            "tier": state.tier,
            **_size(state),
        }
        return ComponentCall(component=self._component, op="pixels", rows=rows, static={"fit": self._fit})

    def _chunk(self, state: EncodeState, pixels: Tensor) -> ComponentCall:
        done = _encoded(state)
        first = 0 if done == 0 else 1 + (done - 1) * self._group
        last = 1 if done == 0 else first + self._group
        return ComponentCall(
            component=self._component,
            op="encode",
            rows={"pixels": pixels[:, first:last]},
            caches=(CacheUse(ref=state.cache, mode=CacheMode.APPEND),),
        )


def _encoded(state: EncodeState) -> int:
    """Chunks that have been encoded: each gives one latent frame."""
    return 0 if state.features is None else state.features.shape[1]


def _size(state: EncodeState) -> dict[str, int]:
    return {"width": state.width, "height": state.height}


def _check_canvas(request: ResolvedRequest) -> None:
    tier, size = str(request.params["tier"]), request.size
    largest = canvas(tier, size)
    if size.width > largest.width or size.height > largest.height:
        raise RequestError(
            "FV302",
            name="size",
            value=str(size),
            rule=f"is beyond the canvas of tier {tier}",
            legal=f"up to {largest} at this aspect ratio",
            remedy="Choose a higher tier, or scale the input first.",
        )


def _too_many(request: ResolvedRequest, group: int) -> RequestError:
    return RequestError(
        "FV310",
        name="parameter condition_frames",
        value=request.params["condition_frames"],
        rule=f"is more than the latent frames of a clip of {request.frames} frames",
        legal=f"1 to {1 + (request.frames - 1) // group}",
        remedy="Keep fewer frames, or make a longer clip.",
    )
