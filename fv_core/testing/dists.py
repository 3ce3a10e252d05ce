"""Fixtures: plugins written to a folder as an installer leaves them, and a registry of those alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import pytest

from fv_core.plugins import discovery
from fv_core.plugins.registry import Registry, default_registry

MakeRegistry: TypeAlias = Callable[..., Registry]


class FakeDist(Protocol):
    """Writes a distribution: a package beside real metadata, importable and found from here on."""

    def __call__(
        self,
        name: str,
        source: str | None = "",
        *,
        version: str = "1.0",
        requires: Sequence[str] = (),
        dist: str = "",
        points: Mapping[str, str] | None = None,
    ) -> Path:
        """Its `.dist-info` folder.

        Args:
            name: of the plugin; the package is `fv_<name>`.
            source: text of the package's `__init__.py`; None leaves the package out, as a deleted source does.
            requires: `Requires-Dist` lines.
            dist: name of the distribution; "" is `fv-<name>`.
            points: entry points of group `fv` by name; None is one, from `name` to the package.
        """
        ...


@pytest.fixture
def fake_dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDist]:
    """Writes distributions into a folder of the test's own; nothing of them stays after the test."""
    site = _site(tmp_path)
    monkeypatch.syspath_prepend(site)
    before = set(sys.modules)

    def write(
        name: str,
        source: str | None = "",
        *,
        version: str = "1.0",
        requires: Sequence[str] = (),
        dist: str = "",
        points: Mapping[str, str] | None = None,
    ) -> Path:
        package, dist = f"fv_{name}", dist or f"fv-{name}"
        if source is not None:
            (site / package).mkdir(exist_ok=True)
            (site / package / "__init__.py").write_text(source)
        info = site / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n{needs}")
        lines = [f"{point} = {target}" for point, target in (points or {name: package}).items()]
        (info / "entry_points.txt").write_text("\n".join(["[fv]", *lines, ""]))
        default_registry.cache_clear()
        return info

    yield write
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", None)).startswith(str(site)):
            del sys.modules[module]
    monkeypatch.undo()
    default_registry.cache_clear()


@pytest.fixture
def registry(tmp_path: Path) -> MakeRegistry:
    """Makes a registry of what `fake_dist` has written so far; takes `strict`. What is installed is not in it."""
    return lambda *, strict=False: Registry(discovery.discover([str(_site(tmp_path))]), strict=strict)


def _site(tmp_path: Path) -> Path:
    site = tmp_path / "site-packages"
    site.mkdir(exist_ok=True)
    return site
