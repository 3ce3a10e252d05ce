"""The kit's own model, importable by the name that its cards use, in this process and in those it starts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def kit() -> Iterator[Any]:
    """The module `kit` beside this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        yield importlib.import_module("kit")
