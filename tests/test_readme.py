"""The README's blocks run: Python as one session, `fv` lines as a user types them.

A machine that runs tests has neither a GPU nor 28 GB of weights, so the blocks run with the tiny card on the CPU in
the place of the 1.3B card on CUDA; nothing else is changed, and what is left out is listed.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
NOT_RUN = ("make ", "pip install", "fv weights pull")  # environments and downloads have tests of their own
STAND_INS = {"wan21/t2v-1.3b": "wan21/tiny", 'device="cuda"': 'device="cpu"'}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def stood_in(text: str) -> str:
    for original, stand_in in STAND_INS.items():
        text = text.replace(original, stand_in)
    return text


def commands() -> list[list[str]]:
    lines = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    return [shlex.split(stood_in(line), comments=True) for line in lines if not line.startswith(NOT_RUN)]


def test_readme_opens_with_the_two_commands() -> None:
    first = blocks("console")[0]
    assert [line.split()[:3] for line in first.splitlines()] == [["$", "make", "demo"], ["$", "make", "test"]]


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(blocks("python")) == 2
    names: dict[str, object] = {}  # the blocks read on, as in one session
    for block in blocks("python"):
        exec(compile(stood_in(block), "README.md", "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} == {"seven.mp4", "0.mp4", "1.mp4"}


def test_console_blocks_run(tmp_path: Path) -> None:
    lines = [line for line in commands() if line[0] == "fv"]
    assert len(lines) >= 7
    for line in lines:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("fv")), *line[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert (tmp_path / "again.mp4").read_bytes() == (tmp_path / "ball.mp4").read_bytes()
