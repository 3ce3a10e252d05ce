"""Every example runs, in an empty folder, and says what it promises."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "batch.py": "FV301",
    "demo.py": "contact-sheet.png",
    "generate.py": "circle.mp4: 9 frames of 64x64 at 8 fps, seed 7, 12 steps",
    "jobs.py": "taken up: seed 3, 33 frames",
    "omni.py": "s of sound",
    "resume.py": "resumed equals uninterrupted: True",
    "stream.py": "chunk 1: 4 frames\n  make chunks 8/11",
}


def test_every_example_is_listed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == SAYS.keys()


@pytest.mark.parametrize("name", sorted(SAYS))
def test_example_runs_and_says_what_it_promises(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out
