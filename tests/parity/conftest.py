"""The small model of the author's kit with a reference of its own, and an engine on it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fv_core import Engine
    from fv_core.parity.trial import Trial

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def by_hand() -> Iterator[Any]:
    """The module `by_hand` beside this file, and with it `kit`."""
    import torch

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE.parent / "testing")
        patch.syspath_prepend(HERE)
        yield importlib.import_module("by_hand")


@pytest.fixture(scope="session")
def kit(by_hand: Any) -> Any:
    """The module `kit` of the author's kit."""
    return importlib.import_module("kit")


@pytest.fixture(autouse=True)
def fv_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that certificates of this machine are not seen."""
    monkeypatch.setenv("FV_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def engine(by_hand: Any) -> Iterator[Engine]:
    """An engine on the small model that claims parity with its reference."""
    from fv_core import Engine

    with Engine([by_hand.CARD], device="cpu") as made:
        yield made


@pytest.fixture
def trial(kit: Any) -> Iterator[Trial]:
    """The small model on trial."""
    from fv_core.parity.trial import Trial

    with Trial(kit.GOOD, device="cpu") as made:
        yield made
