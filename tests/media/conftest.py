"""Clips to save: a maker, a small moving picture, and noise that no codec makes small."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from fv_core.media import Clip
from fv_core.request import Environment, Numerics, ResolvedRequest, Size, TaskType, Used

Frames = npt.NDArray[np.uint8]


def make_clip(frames: Frames, fps: float = 16.0, prompt: str = "Zebra quorum, naïve!", seed: int = 7) -> Clip:
    """A clip whose facts agree with `frames`; its prompt and weights use words found nowhere else."""
    count, height, width, _ = frames.shape
    request = ResolvedRequest(
        model="wan21/micro", task=TaskType.T2V, prompt=prompt, negative_prompt="", seed=seed,
        size=Size(width, height), frames=count, fps=fps, steps=4, guidance=5.0, numerics=Numerics.EXACT,
        params={"shift": 3.0}, adjusted=("quorum was adjusted",),
    )  # fmt: skip
    environment = Environment(
        device="cpu", device_name="a processor", instructions="AVX2", threads=1, platform="linux",
        versions={"fv-core": "0.1.0", "torch": "2.13.0"},
    )  # fmt: skip
    used = Used(
        model=request.model, card_digest="ab" * 32, plugin="fv-wan21 0.1.0", weights="/private/zebra", seed=seed,
        size=request.size, frames=count, fps=fps, steps=4, guidance=5.0, sampler="flow.unipc2.cfg/v1",
        numerics=request.numerics, dtype="float32", params=request.params, extensions=(),
        environment=environment, environment_hash="cd" * 32, seconds=1.5, adjusted=request.adjusted,
    )  # fmt: skip
    return Clip(frames=frames, fps=fps, request=request, used=used)


@pytest.fixture
def clip_of() -> Callable[..., Clip]:
    """`make_clip`, for test modules, which cannot import each other."""
    return make_clip


@pytest.fixture
def circle() -> Clip:
    """Seven frames [64, 96] of a red disc that moves right over dark grey: two colours."""
    frames = np.full((7, 64, 96, 3), 40, dtype=np.uint8)
    rows, columns = np.mgrid[0:64, 0:96]
    for index, frame in enumerate(frames):
        frame[(rows - 32) ** 2 + (columns - 20 - 8 * index) ** 2 < 200] = (220, 30, 30)
    return make_clip(frames)


@pytest.fixture
def noise() -> Clip:
    """Nine frames [96, 96] of noise; every format needs more than 16 KiB for them."""
    return make_clip(np.random.default_rng(0).integers(0, 256, (9, 96, 96, 3), dtype=np.uint8))
