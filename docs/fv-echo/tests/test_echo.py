"""The card keeps to everything that fv expects of one, and what is stated in it is true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from fv_core import Engine, Numerics, Request
from fv_core.loop import ResolvedCall
from fv_core.testing import CardConformance
from fv_core.testing.sharing import moved_by_sharing
from fv_echo.card import TINY


class TestTiny(CardConformance):
    card_id = "echo/tiny"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(["echo/tiny"], device="cpu") as made:
        yield made


def test_counts_of_parameters_are_those_of_the_modules(engine: Engine) -> None:
    instance = engine.instance("echo/tiny")
    for name, spec in TINY.components.items():
        module = instance.component(name).module
        assert spec.parameters == sum(parameter.numel() for parameter in module.parameters()), name


def test_a_prompt_that_is_cut_is_told(engine: Engine) -> None:
    short, long = (
        engine.run(Request(prompt=prompt, size=(16, 16), frames=5, steps=1))
        for prompt in ("a" * 64, "a" * 65)
    )
    assert not short.used.adjusted
    assert "65 bytes and was cut to 64" in str(long.used.adjusted)


def test_requests_share_forwards_and_keep_their_own_bits(engine: Engine) -> None:
    instance, numbers = engine.instance("echo/tiny"), torch.Generator().manual_seed(3)
    texts = [_call(text="cat " * index) for index in range(16)]
    assert moved_by_sharing(instance.component("text"), "encode", texts, Numerics.EXACT) == 0.0
    steps = [
        _call(
            latent=torch.randn(4, 2, 3, 5, generator=numbers),
            timestep=60 * index,
            text=torch.randn(64, 32, generator=numbers),
        )
        for index in range(16)
    ]
    denoiser = instance.component("denoiser")
    assert moved_by_sharing(denoiser, "velocity", steps, Numerics.EXACT) == 0.0
    assert 0.0 < moved_by_sharing(denoiser, "velocity", steps, Numerics.FAST) < 1e-5  # measured: 4.2e-7


def _call(**rows: Tensor | str | int) -> ResolvedCall:
    return ResolvedCall(rows=rows, static={}, caches=())
