"""What the gates share: interceptors by import string, and requests that differ in everything."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fv_core.extend import InterceptorSpec
from fv_core.request import Numerics, Request

HERE = Path(__file__).parent
PROMPTS = ("a red circle", "a blue square moving left", "two green triangles, slowly", "circle " * 600)


@pytest.fixture
def interceptor(monkeypatch: pytest.MonkeyPatch) -> Callable[..., InterceptorSpec]:
    """The record of an interceptor of `gate_interceptors`, by class name."""
    monkeypatch.syspath_prepend(HERE)
    made: Callable[..., InterceptorSpec] = importlib.import_module("gate_interceptors").spec
    return made


@pytest.fixture
def mixed(ask: Callable[..., Request]) -> Callable[..., list[Request]]:
    """`count` requests of different prompts, seeds, sizes, frames, steps, guidance and shift."""

    def draw(seed: int, count: int, numerics: Numerics) -> list[Request]:
        rng = random.Random(seed)

        def one() -> dict[str, Any]:
            return {
                "prompt": rng.choice(PROMPTS), "negative_prompt": rng.choice([None, "grey", "still"]),
                "seed": rng.randrange(2**64), "size": rng.choice([(16, 16), (32, 16), (16, 48)]),
                "frames": rng.choice([1, 5, 9]), "steps": rng.choice([1, 2, 3, 5]),
                "guidance": rng.choice([1.0, 1.5, 5.0]), "params": {"shift": rng.choice([1.0, 3.0, 8.0])},
            }  # fmt: skip

        return [ask(**one(), numerics=numerics) for _ in range(count)]

    return draw
