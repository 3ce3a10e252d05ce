"""docs/adapters.md says what is so: its block runs, and its table names the components that take adapters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fv_core import Adapter
from fv_core.adapters.settle import takers
from fv_core.plugins import find_card

TEXT = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text()


def test_the_block_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    found: dict[str, Any] = {}
    exec(block, found)
    assert found["request"].adapters == (Adapter(path="style.safetensors", scale=0.8),)


@pytest.mark.parametrize("plugin", ["bagel", "cosmos3", "ltx2", "wan-causal", "wan21"])
def test_the_table_names_the_components_that_take_adapters(plugin: str) -> None:
    (row,) = re.findall(rf"^\|[^|]*`{plugin}`[^|]*\|([^|]*)\|", TEXT, flags=re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", row))
    assert named == set(takers(find_card(f"{plugin}/tiny")))
