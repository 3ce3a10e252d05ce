"""The card keeps to everything that fv expects of one, and what is stated in it is true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fv_core import Engine, Request
from fv_core.testing import CardConformance
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
