"""Calls of many requests in one forward: under `exact` the bits of each alone, under `fast` nearly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core.loop import ResolvedCall
from fv_core.request import Numerics
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.testing.sharing import moved_by_sharing
from fv_ltx2.card import TINY_DISTILLED

FAST_TOLERANCE = 5e-6
"""Measured: at most 7.2e-7 for velocities of about 2."""

PLAIN: Mapping[str, Any] = {"skip": -1, "isolated": False, "by_channel": False}


@pytest.fixture(scope="module")
def instance() -> ModelInstance:
    return ModelInstance(
        TINY_DISTILLED, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.NONE
    )


@pytest.fixture(autouse=True)
def _same_numbers() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def velocities(
    grid: tuple[int, int, int] = (3, 2, 2), audio: int = 18, clean: int = 0, **static: Any
) -> list[ResolvedCall]:
    """Another latent, timestep, prompt and length of prompt each; every third has a negative prompt beside its own."""
    return [_velocity(index, grid, audio, clean, {**PLAIN, **static}) for index in range(16)]


def _velocity(
    index: int, grid: tuple[int, int, int], audio: int, clean: int, static: Mapping[str, Any]
) -> ResolvedCall:
    prompts, (frames, height, width) = 2 if index % 3 == 0 else 1, grid
    mask = torch.zeros(prompts, 64, dtype=torch.int64)
    mask[:, 60 - 3 * index :] = 1
    rows: Mapping[str, Any] = {
        "latent": torch.randn(frames * height * width, 8),
        "audio_latent": torch.randn(audio, 8),
        "timestep": torch.tensor(1000.0 - 37.3 * index),
        "text_video": torch.randn(prompts, 64, 32),
        "text_audio": torch.randn(prompts, 64, 32),
        "text_mask": mask,
        "prompt": prompts - 1,
        "frames": frames,
        "height": height,
        "width": width,
        "clean": clean,
        "fps": 24.0,
    }
    return ResolvedCall(rows=rows, static=static, caches=())


CASES: Mapping[str, Mapping[str, Any]] = {
    "first stage": {"by_channel": True},
    "second stage": {"grid": (3, 4, 4)},
    "one token": {"grid": (1, 1, 1), "audio": 1},
    "after an image": {"grid": (3, 4, 4), "clean": 16, "by_channel": True},
    "skipped": {"skip": 1},
    "isolated": {"isolated": True},
}


@pytest.mark.parametrize("case", CASES)
def test_exact_velocities_are_those_of_each_call_alone(case: str, instance: ModelInstance) -> None:
    component = instance.component("transformer")
    assert moved_by_sharing(component, "velocity", velocities(**CASES[case]), Numerics.EXACT) == 0.0


@pytest.mark.parametrize("case", CASES)
def test_control_fast_velocities_move_within_the_tolerance(case: str, instance: ModelInstance) -> None:
    component = instance.component("transformer")
    moved = moved_by_sharing(component, "velocity", velocities(**CASES[case]), Numerics.FAST)
    assert 0.0 < moved < FAST_TOLERANCE


@pytest.mark.parametrize("case", CASES)
def test_exact_alone_is_the_reference(case: str, instance: ModelInstance) -> None:
    component = instance.component("transformer")
    for each in velocities(**CASES[case])[:2]:
        mine, reference = (
            component.forward_batch("velocity", [replace(each, numerics=numerics)])[0].output.tensors
            for numerics in (Numerics.EXACT, Numerics.REFERENCE)
        )
        assert all(torch.equal(mine[name], reference[name]) for name in reference)


def test_prompts_of_any_length_share_a_forward_with_their_own_bits(instance: ModelInstance) -> None:
    calls = [
        ResolvedCall(rows={"text": "a red circle moving right " * count}, static={}, caches=())
        for count in range(16)
    ]
    assert moved_by_sharing(instance.component("text"), "encode", calls, Numerics.EXACT) == 0.0


def test_what_cannot_be_stacked_shares_no_forward(instance: ModelInstance) -> None:
    component, first = instance.component("transformer"), velocities()[0]
    longer = {name: torch.zeros(1, 72, 32) for name in ("text_video", "text_audio")}
    others = [
        *velocities(grid=(2, 3, 2))[:1], *velocities(audio=9)[:1], *velocities(clean=4)[:1],
        *velocities(skip=1)[:1], *velocities(isolated=True)[:1], *velocities(by_channel=True)[:1],
        replace(first, rows={**first.rows, **longer}),
        replace(first, rows={**first.rows, "latent": torch.zeros(12, 8, dtype=torch.float64)}),
        replace(first, rows={**first.rows, "fps": 25.0}),
    ]  # fmt: skip
    assert len({component.batch_key("velocity", each) for each in (first, *others)}) == 10
