"""The kit's fixtures run without any plugin, as authors get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

AUTHORS_TESTS = """
import sys

import pytest
import torch

from fv_core import Request
from fv_core.card import validate

class TestFixtures:
    def test_the_engine_runs_the_tiny_card(self, engine, tiny_card):
        assert validate(tiny_card) == ()
        assert torch.get_num_threads() == 1
        clip = engine.run(Request(prompt="a red circle", seed=1, size=(16, 16), frames=5, steps=2))
        assert clip.request.model == tiny_card.model_id == "testing/tiny"
        assert clip.frames.shape == (5, 16, 16, 3)
        assert not any(name.startswith("fv_wan21") for name in sys.modules)

    def test_every_test_gets_an_engine_of_its_own(self, engine):
        assert engine.counters().requests == 0

class TestOwnCard:
    @pytest.fixture(scope="session")
    def tiny_card(self):
        from fv_core import derive
        from fv_core.testing.tiny import CARD
        return derive(CARD, model_id="mine/tiny")

    def test_the_engine_takes_the_card_that_a_test_defines(self, engine):
        assert engine.run(Request(prompt="a ball", size=(16, 16), frames=1, steps=1)).request.model == "mine/tiny"
"""


def test_fixtures_serve_an_author(run_as_author: Callable[[str], Any]) -> None:
    found = run_as_author(AUTHORS_TESTS)
    assert {name: set(outcomes) for name, outcomes in found.items()} == {
        "Fixtures": {"passed"},
        "OwnCard": {"passed"},
    }
    assert len(found["Fixtures"]["passed"]) == 2
