"""The loop that encodes an image to a latent: a sample of the posterior, with noise of the request's own stream.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `AutoEncoder.encode`; its noise comes before that of the image made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

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
from fv_core.loop.inputs import tensor
from fv_core.loop.params import check_roles, read_params
from fv_core.loop.rng import seed_state, torch_normal
from fv_core.request import ResolvedRequest, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeParams:
    """There are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeState:
    """The image uint8 [H, W, 3], the noise fp32 [C, h, w], the stream after it, and the latent once it is there."""

    image: Tensor
    noise: Tensor
    rng: Tensor
    latent: Tensor | None


class EncodeImage:
    """Role: `vae`; op `encode`. Reads `image` as a tensor; writes `latent` [C, h, w] and `rng`, a generator's state."""

    semantics: ClassVar[tuple[str, ...]] = ("vae.encode.sample/v1",)
    State: ClassVar[type] = EncodeState
    Params: ClassVar[type] = EncodeParams
    request_params: ClassVar[tuple[str, ...]] = ()

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        owner = f"card {card.model_id}"
        read_params(EncodeParams, spec.params, owner=owner)
        check_roles(spec, ("vae",), owner=owner)
        self._card = card
        self._component = spec.binds["vae"]

    def total(self, request: ResolvedRequest) -> int:
        return 1

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> EncodeState:
        """Raises:
        RequestError: FV302, the image to make is of another size than the one given.
        """
        image = tensor(inputs, "image")
        size = Size(image.shape[1], image.shape[0])
        if size != request.size:
            raise _other_size(request.size, size)
        channels, _, height, width = self._card.geometry(size, 1).latent
        noise, rng = torch_normal(seed_state(request.seed), (channels, height, width))
        return EncodeState(image=image, noise=noise.to(env.device), rng=rng, latent=None)

    def next(self, state: EncodeState) -> WorkPlan | Done:
        if state.latent is not None:
            return Done()
        call = ComponentCall(
            component=self._component, op="encode", rows={"image": state.image, "noise": state.noise}
        )
        return WorkPlan(calls=(call,), kind=WorkKind.COMPONENT, step=0, total=1)

    def predict(self, state: EncodeState, result: StepResult) -> Tensor:
        return result.outputs[0].tensors["latent"]

    def update(self, state: EncodeState, prediction: Tensor, result: StepResult) -> EncodeState:
        return replace(state, latent=prediction)

    def emit(self, old: EncodeState, new: EncodeState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: EncodeState) -> LoopOutputs:
        assert state.latent is not None
        return LoopOutputs(slots={"latent": state.latent, "rng": state.rng})


def _other_size(asked: Size, own: Size) -> RequestError:
    return RequestError(
        "FV302",
        name="size",
        value=str(asked),
        rule="is not the size of the image to edit",
        legal=str(own),
        remedy="Leave the size out, or resize the image first.",
    )
