"""Runs on the kit's tiny card, closed at the end of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from fv_core.testing.training import tiny_run
from fv_core.training.contract import Source
from fv_core.training.ranks import Ranks
from fv_core.training.trainer import Trainer


class Make(Protocol):
    """Makes a run in the test's folder; see `tiny_run`."""

    def __call__(
        self, source: Source | None = None, *, ranks: Ranks | None = None, **settings: Any
    ) -> Trainer: ...


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    torch.set_num_threads(1)
    with ExitStack() as stack:

        def made(source: Source | None = None, *, ranks: Ranks | None = None, **settings: Any) -> Trainer:
            trainer = tiny_run(tmp_path / "run", source, ranks=ranks, **settings)
            stack.enter_context(trainer.setup.engine)
            return trainer

        yield made
