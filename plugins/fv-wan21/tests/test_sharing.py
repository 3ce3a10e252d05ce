"""Calls of many requests in one forward: under `exact` the bits of each alone, under `fast` nearly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers import WanTransformer3DModel

from fv_core.loop import ResolvedCall
from fv_core.request import Numerics
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.testing.sharing import moved_by_sharing
from fv_wan21.card import MICRO
from fv_wan21.components import Denoiser

FAST_TOLERANCE = 5e-6
"""Measured: at most 8.4e-7 for velocities of about 2."""

WORDS = ["a", "red", "circle", "&", "blue", "square", "above", "green", "triangle", "under", "white", "sky"]


@pytest.fixture(scope="module")
def instance() -> ModelInstance:
    return ModelInstance(
        MICRO, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.NONE
    )


@pytest.fixture(autouse=True)
def _same_numbers() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def velocities(
    frames: int = 2, height: int = 4, width: int = 6, dtype: Any = torch.float32
) -> list[ResolvedCall]:
    """Another latent, timestep and prompt each."""
    return [
        call(
            latent=torch.randn(16, frames, height, width),
            timestep=(37 + 61 * index) % 1000,
            text=torch.randn(512, 32, dtype=dtype),
        )
        for index in range(16)
    ]


def call(**rows: Any) -> ResolvedCall:
    return ResolvedCall(rows=rows, static={}, caches=())


def prompts() -> list[ResolvedCall]:
    return [call(text=" ".join(WORDS[index % 5 : index % 5 + index])) for index in range(15)] + [
        call(text="circle " * 600)
    ]


def denoiser(**sizes: int) -> Denoiser:
    config = {**MICRO.components["transformer"].config, **sizes}
    return Denoiser(WanTransformer3DModel.from_config(config).eval())


@pytest.mark.parametrize("size", [(1, 2, 2), (1, 2, 6), (2, 4, 6), (5, 8, 8)])
def test_exact_velocities_are_those_of_each_call_alone(
    size: tuple[int, int, int], instance: ModelInstance
) -> None:
    """From 1 token per sample to the card's default size."""
    component = instance.component("transformer")
    assert moved_by_sharing(component, "velocity", velocities(*size), Numerics.EXACT) == 0.0


@pytest.mark.parametrize(
    "sizes",
    [{"attention_head_dim": 12}, {"ffn_dim": 37}, {"num_attention_heads": 4, "attention_head_dim": 96}],
)
def test_exact_holds_at_other_widths(sizes: dict[str, int]) -> None:
    """Widths that fill no whole vectors, and one whose rows are long."""
    assert moved_by_sharing(denoiser(**sizes, num_layers=1), "velocity", velocities(), Numerics.EXACT) == 0.0


@pytest.mark.parametrize("size", [(1, 2, 2), (5, 8, 8)])
def test_control_fast_velocities_move_within_the_tolerance(
    size: tuple[int, int, int], instance: ModelInstance
) -> None:
    component = instance.component("transformer")
    moved = moved_by_sharing(component, "velocity", velocities(*size), Numerics.FAST)
    assert 0.0 < moved < FAST_TOLERANCE


def test_exact_alone_is_the_reference(instance: ModelInstance) -> None:
    component = instance.component("transformer")
    for each in velocities()[:3]:
        mine, reference = (
            component.forward_batch("velocity", [replace(each, numerics=numerics)])[0].output.tensors[
                "velocity"
            ]
            for numerics in (Numerics.EXACT, Numerics.REFERENCE)
        )
        assert torch.equal(mine, reference)


def test_prompts_of_any_length_share_a_forward_with_their_own_bits(instance: ModelInstance) -> None:
    component = instance.component("text")
    assert moved_by_sharing(component, "encode", prompts(), Numerics.EXACT) == 0.0


def test_what_cannot_be_stacked_shares_no_forward(instance: ModelInstance) -> None:
    component, first = instance.component("transformer"), velocities()[0]
    latent, text = first.rows["latent"], first.rows["text"]
    assert isinstance(latent, torch.Tensor) and isinstance(text, torch.Tensor)
    others = [
        {"latent": latent[:, :1]},
        {"text": text[:100]},
        {"latent": latent.double()},
        {"text": text.half()},
    ]
    calls = [first, *(replace(first, rows={**first.rows, **other}) for other in others)]
    assert len({component.batch_key("velocity", each) for each in calls}) == 5


def test_what_differs_between_requests_shares_a_forward(instance: ModelInstance) -> None:
    """Prompt, noise and timestep do not reach the key; guidance and the number of steps do not reach the call."""
    component = instance.component("transformer")
    assert len({component.batch_key("velocity", each) for each in velocities()}) == 1
