"""`fv` in this process, in an empty folder and home: its exit code and what it wrote where."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fv_core.cli.main import run

PLUGIN = """
from fv_core.hookspecs import hookimpl
fv_api = {api}
@hookimpl
def fv_cards():
    return []
"""


class Told(NamedTuple):
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


@pytest.fixture
def fv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Told]:
    """Runs `fv ARGUMENTS` in `tmp_path / "work"`; nothing it writes off a terminal may hold an escape sequence."""
    for name in [name for name in os.environ if name.startswith(("FV_", "HF_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        "fv_core.runtime.models.EMBEDDED_DEFAULT", "wan21/micro"
    )  # has no words to tell about
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def command(*arguments: object) -> Told:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        told = Told(code, *capsys.readouterr())
        assert "\x1b" not in told.out + told.err or "always" in arguments
        return told

    return command


@pytest.fixture
def work(fv: object) -> Path:
    """The folder that `fv` runs in."""
    return Path.cwd()


@pytest.fixture
def broken_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an installed plugin that was made for another API of the core."""
    from fv_core.plugins import default_registry

    site = tmp_path / "site"
    (site / "fv_later-2.5.dist-info").mkdir(parents=True)
    (site / "fv_later-2.5.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: fv-later\nVersion: 2.5\n"
    )
    (site / "fv_later-2.5.dist-info" / "entry_points.txt").write_text("[fv]\nlater = fv_later\n")
    (site / "fv_later.py").write_text(PLUGIN.format(api=99))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "fv_later", raising=False)
    default_registry.cache_clear()
    yield "later"
    monkeypatch.undo()
    default_registry.cache_clear()


@pytest.fixture
def few_gates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The gates that a suite has where a test shows what a command makes of them; all of them run in `tests/parity`."""
    from fv_core.parity import suite

    few = {name: suite.GATES[name] for name in ("validation", "finite", "next", "emission")}
    monkeypatch.setattr(suite, "GATES", few)
    return list(few)


@pytest.fixture
def forget() -> Iterator[None]:
    """What a check of a source folder put on the path and imported leaves with its test."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in {
        name
        for name in sys.modules
        if name.startswith("fv_") and not name.startswith(("fv_core", "fv_wan21"))
    } - modules:
        del sys.modules[name]
