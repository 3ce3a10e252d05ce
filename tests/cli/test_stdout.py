"""Standard output holds the result and nothing else, whatever a plugin prints or is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fv = Callable[..., Any]

NOISY = """
import atexit, os, sys
from fv_core import hookimpl

fv_api = 1
print("a word")
os.write(1, b"bytes below\\n")
if "pytest" not in sys.modules:
    atexit.register(print, "a last word")

@hookimpl
def fv_cards():
    print("another word")
    return []
"""


@pytest.fixture
def noisy(tmp_path: Path, install_dists: Callable[..., Path]) -> Path:
    """The folder of an installed plugin that prints; it is the source of one as well."""
    site = install_dists("good")
    (site / "fv_good" / "__init__.py").write_text(NOISY)
    (site / "pyproject.toml").write_text(
        '[project]\nname = "fv-good"\nversion = "0.3.1"\nentry-points.fv = {good = "fv_good"}\n'
    )
    return site


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize(
    "words",
    ["models --json", "plugins --check --json", "plugins show good --json", "plugins check SITE --json"],
)
def test_what_a_plugin_prints_is_not_in_the_document(words: str, fv: Fv, noisy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(noisy)}
    command = [sys.executable, "-m", "fv_core", *words.replace("SITE", str(noisy)).split()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    for printed in ("a word", "bytes below", "another word", "a last word"):
        assert f"{printed}\n" in done.stderr


def test_what_a_plugin_prints_is_not_in_a_captured_result(fv: Fv, noisy: Path) -> None:
    before, descriptor = sys.stdout, os.fstat(1)
    told = fv("models")
    assert told.out.startswith("MODEL ")
    assert "a word" not in told.out
    assert "another word" not in told.out
    assert "a word\n" in told.err
    assert sys.stdout is before
    assert os.fstat(1) == descriptor


def test_what_a_plugin_prints_is_no_completion(
    noisy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import click

    from fv_core.cli.completion import model_ids
    from fv_core.cli.main import fv as root

    monkeypatch.delitem(sys.modules, "fv_good", raising=False)
    assert model_ids(click.Context(root), root.params[0], "good/") == []
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "a word\nanother word\n")


def test_foreign_text_is_escaped_in_tables_and_lines(fv: Fv, install_dists: Callable[..., Path]) -> None:
    site = install_dists("good")
    package = site / "fv_good" / "__init__.py"
    package.write_text(
        package.read_text().replace('family="good"', r'family="good", summary="red \x1b[31m\nrow"')
    )
    metadata = site / "fv_good-0.3.1.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: fv-good\nVersion: 0.3.1\x1b[31m\n")
    [row] = [line for line in fv("models").out.splitlines() if line.startswith("good/tiny")]
    assert row.endswith(r"red \x1b[31m\nrow")
    assert fv("models", "show", "good/tiny").out.startswith("good/tiny  red \\x1b[31m\\nrow\n")
    assert r"0.3.1\x1b[31m" in fv("plugins").out
    assert r"fv-good==0.3.1\x1b[31m" in fv("plugins", "--requirements").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("plugins --json show wan21", "--json belongs after the command: fv plugins show ... --json"),
        ("models --json show wan21/micro", "--json belongs after the command: fv models show ... --json"),
        (
            "plugins --check show X",
            "--check belongs to `fv plugins` alone; `fv plugins show` has no such option",
        ),
        ("plugins --requirements new foo", "--requirements belongs to `fv plugins` alone"),
        ("plugins --requirements --json", "--requirements prints lines for pip"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(fv: Fv, work: Path, words: str, sentence: str) -> None:
    told = fv(*words.split())
    assert told.code == 2
    message = told.json["error"]["message"] if "--json" in words else told.err
    assert sentence in message
    assert list(work.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "as_json"),
    [
        ("explain FV1 --json", True),
        ("explain --json FV1", True),
        ("explain -- --json", False),  # a code of that name
        ("generate --negative --json --steps 0 x", False),  # a prompt of that name
        ("models show --json", True),  # which lacks an id
        ("models shwo --json", True),
        ("config --json --model absent/tiny", True),
        ("explain FV1 --json --frobnicate", True),
    ],
)
def test_an_error_is_a_document_where_the_option_is_given(fv: Fv, words: str, as_json: bool) -> None:
    told = fv(*words.split())
    assert told.code == 2
    assert (told.out != "", told.err == "") == (as_json, as_json)


@pytest.mark.parametrize("words", ["--help", "plugins --help", "plugins show --help", "env --help"])
def test_help_is_a_result(fv: Fv, words: str) -> None:
    told = fv(*words.split())
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("Usage: fv ")
