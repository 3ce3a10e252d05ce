"""Distributions on disk, as an installer leaves them: a package and its metadata, found through the path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fv_core.plugins import registry

Install = Callable[..., None]


def forget() -> None:
    """What the registry has found stays found in a process; tests change what there is."""
    registry.default_registry.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Writes the distribution `fv-<name>` with the package `fv_<name>` and its entry point in group `fv`."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FV_STRICT_PLUGINS", "0")
    packages = []

    def write(name: str, source: str, *, requires: tuple[str, ...] = ()) -> None:
        package = f"fv_{name}"
        (tmp_path / f"{package}.py").write_text(source)
        info = tmp_path / f"{package}-1.2.3.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: fv-{name}", "Version: 1.2.3"]
        (info / "METADATA").write_text(
            "\n".join([*lines, *(f"Requires-Dist: {each}" for each in requires)]) + "\n"
        )
        (info / "entry_points.txt").write_text(f"[fv]\n{name} = {package}\n")
        packages.append(package)
        forget()

    yield write
    for package in packages:
        sys.modules.pop(package, None)
    monkeypatch.undo()
    forget()
