"""Fixtures: a small card, and an engine on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fv_core.card import ModelCard

if TYPE_CHECKING:
    from fv_core.runtime.engine import Engine


@pytest.fixture(scope="session")
def tiny_card() -> ModelCard:
    """A card that runs in milliseconds and needs nothing installed; define a fixture of this name to use another."""
    from fv_core.testing.tiny import CARD  # loads torch

    return CARD


@pytest.fixture
def engine(tiny_card: ModelCard) -> Iterator[Engine]:
    """A new engine on `tiny_card`, on the CPU with one thread, on which bits depend; what may share a forward does."""
    import torch

    from fv_core.runtime.engine import Engine
    from fv_core.runtime.gain import Always

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Engine([tiny_card], device="cpu", gain=Always()) as made:
        yield made
    torch.set_num_threads(threads)
