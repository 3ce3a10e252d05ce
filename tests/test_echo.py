"""The tutorial plugin as its author would treat it: built, installed, listed, run, tested, checked, uninstalled."""

from __future__ import annotations

import ast
import json
import re
import shutil
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fv_core.parity.suite import GATES

ROOT = Path(__file__).parents[1]
ECHO = ROOT / "docs" / "fv-echo"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the plugin, as an author begins with one."""
    folder = tmp_path_factory.mktemp("author") / "fv-echo"
    shutil.copytree(ECHO, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return folder


@pytest.fixture(scope="module")
def installed(make_installation: Callable[..., Any], wheels: list[Path], source: Path) -> Any:
    """An environment with core and the plugin alone."""
    made = make_installation(wheels[0])
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", source.parent]
    made.run("pip", "wheel", *options, source, cwd=source.parent)
    made.run("pip", "install", "--quiet", *source.parent.glob("*.whl"), cwd=source.parent)
    return made


def test_wheel_holds_the_package_alone(installed: Any, source: Path) -> None:
    (wheel,) = source.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == {str(file.relative_to(ECHO)) for file in ECHO.glob("fv_echo/*") if file.is_file()}


def test_is_listed_and_ready(installed: Any, tmp_path: Path) -> None:
    listed = installed.run("fv", "plugins", cwd=tmp_path).stdout.splitlines()
    assert listed[1].split() == ["echo", "fv-echo", "0.1.0", "discovered", "-"]
    (record,) = json.loads(installed.run("fv", "plugins", "--check", "--json", cwd=tmp_path).stdout)[
        "plugins"
    ]
    assert (record["state"], record["provides"]) == ("ready", [{"kind": "card", "id": "echo/tiny"}])


def test_generates_the_same_bytes_for_the_same_seed(installed: Any, tmp_path: Path) -> None:
    asked = ["generate", "a red ball", "--model", "echo/tiny", "--seed", 7, "--device", "cpu"]
    two = installed.run("fv", *asked, "--n", 2, "-o", "two.npy", cwd=tmp_path)
    assert two.stdout == "two-1.npy\ntwo-2.npy\n"
    installed.run("fv", *asked, "-o", "one.npy", cwd=tmp_path)
    one, same, other = ((tmp_path / name).read_bytes() for name in ("one.npy", "two-1.npy", "two-2.npy"))
    assert one == same != other


def test_passes_its_own_tests(installed: Any, source: Path) -> None:
    told = installed.run("pytest", "--quiet", "-p", "no:cacheprovider", cwd=source).stdout
    assert re.fullmatch(r"\.+ +\[100%\]\n\d+ passed in .*\n", told), told


def test_passes_the_checks_for_authors(installed: Any, source: Path) -> None:
    told = json.loads(installed.run("fv", "plugins", "check", "--json", source, cwd=source.parent).stdout)
    assert told["ok"] is True
    assert [gate["gate"] for gate in told["gates"]] == list(GATES)


def test_equals_its_reference(installed: Any, tmp_path: Path) -> None:
    told = json.loads(installed.run("fv", "parity", "check", "echo/tiny", "--json", cwd=tmp_path).stdout)
    assert told["ok"] is True
    assert [rung["rung"] for rung in told["rungs"]] == ["C0", "C1"]


def test_imports_contracts_only() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (forbidden,) = [
        set(one["forbidden_modules"]) for one in contracts if one["name"] == "Plugins import contracts only"
    ]
    imported = {
        node.module or ""
        for file in ECHO.glob("fv_echo/*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    assert "fv_core.loop" in imported
    assert {name for name in imported if name.startswith("fv_wan")} == set()
    assert {name for name in imported if any(f"{name}.".startswith(f"{one}.") for one in forbidden)} == set()


def test_uninstalls_without_a_trace(
    make_installation: Callable[..., Any], wheels: list[Path], installed: Any, source: Path, tmp_path: Path
) -> None:
    other = make_installation(wheels[0])
    before = {file.name for file in other.site.iterdir()}
    other.run("pip", "install", "--quiet", *source.parent.glob("*.whl"), cwd=tmp_path)
    other.run("fv", "plugins", "--check", cwd=tmp_path)
    other.run("pip", "uninstall", "--quiet", "--yes", "fv-echo", cwd=tmp_path)
    assert {file.name for file in other.site.iterdir()} == before
    assert json.loads(other.run("fv", "plugins", "--json", cwd=tmp_path).stdout)["plugins"] == []
