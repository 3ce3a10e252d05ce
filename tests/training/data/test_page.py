"""docs/training-data.md: its blocks run in order, and print what they are said to."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fv_core.cli.main import run as fv

TEXT = (Path(__file__).parents[3] / "docs" / "training-data.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def is_shown(printed: str, shown: str) -> bool:
    """Whether it is what was printed; "..." stands for any number of lines."""
    patterns = [re.escape(line) for line in shown.splitlines()]
    whole = "".join("(?:.*\n)*" if one == re.escape("...") else f"{one}\n" for one in patterns)
    return bool(re.fullmatch(whole, printed))


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FV_HOME", str(tmp_path / "home"))
    blocks = BLOCK.findall(TEXT)
    assert [kind for kind, _ in blocks] == ["python", "toml", "console", "console"]
    for kind, text in blocks:
        if kind == "python":
            exec(text, {})
        elif kind == "toml":
            Path(text.split()[1]).write_text(text)
        else:
            for part in text.split("$ fv ")[1:]:
                command, _, shown = part.partition("\n")
                capsys.readouterr()
                assert fv(shlex.split(command)) == 0
                printed = capsys.readouterr().out
                assert is_shown(printed, shown), printed


def test_the_page_is_short_and_shown_lines_are_compared() -> None:
    assert len(TEXT.splitlines()) <= 120
    assert is_shown("a\nb\nc\n", "a\n...\n") and not is_shown("a\nb\n", "a\n") and not is_shown("b\n", "a\n")
