"""docs/errors.md says what the registry says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fv_core.errors import CODES
from fv_core.errors.document import document

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def test_the_page_is_current() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "fv_core.errors.document"], check=True, capture_output=True, text=True
    )
    assert PAGE.read_text() == printed.stdout, "run: python -m fv_core.errors.document > docs/errors.md"


def test_the_page_tells_every_code_once() -> None:
    text = document()
    for code, entry in CODES.items():
        assert text.count(f"### {code}: {entry.title}\n") == 1
        assert entry.explanation in text
