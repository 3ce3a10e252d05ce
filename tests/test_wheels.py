"""Built wheels hold what they should and nothing else, and work where there is no repository."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = {".py", ".json", ".toml", ".typed"}
"""What a package may hold."""
ASSETS = {
    package.name: {
        file.relative_to(package).as_posix()
        for file in package.rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc")
    }
    for package in (ROOT / "fv_core", *sorted(ROOT.glob("plugins/*/fv_*")))
}
"""What each package holds beside its code, core first."""


def source_of(wheel: Path) -> Path:
    """The folder that the wheel was built from."""
    name = wheel.name.partition("-")[0]
    return ROOT if name == "fv_core" else ROOT / "plugins" / name.replace("_", "-")


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path, file: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (found,) = [name for name in archive.namelist() if name.endswith(f".dist-info/{file}")]
        return archive.read(found).decode()


def findings(wheel: Path) -> list[str]:
    """Everything that is wrong with what the wheel holds."""
    package, source = wheel.name.partition("-")[0], source_of(wheel)
    inside = {name for name in names(wheel) if ".dist-info/" not in name}
    ours = {
        str(file.relative_to(source))
        for file in (source / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    rules = {
        "lacks": ours - inside,
        "holds more than its source": inside - ours,
        "holds no part of the package": {name for name in inside if not name.startswith(f"{package}/")},
        "holds what is no part of a library": {name for name in inside if Path(name).suffix not in LIBRARY
                                               and Path(name).name != "py.typed" and "/assets/" not in name},
        "holds tests": {name for name in inside if re.search(r"(^|/)(tests/|test_|conftest)", name)},
        "lacks the asset": {f"{package}/{asset}" for asset in ASSETS[package]} - inside,
    }  # fmt: skip
    if metadata(wheel, "licenses/LICENSE") != (ROOT / "LICENSE").read_text():
        rules["holds another licence"] = {"LICENSE"}
    return [f"{wheel.name} {rule} {name}" for rule, found in rules.items() for name in sorted(found)]


def test_wheels_hold_the_package_its_assets_and_the_licence_alone(wheels: list[Path]) -> None:
    assert {wheel.name.partition("-")[0] for wheel in wheels} == set(ASSETS)
    assert all("py.typed" in assets for assets in ASSETS.values())
    assert sum("assets/tokenizer/tokenizer.json" in assets for assets in ASSETS.values()) >= 4
    assert [finding for wheel in wheels for finding in findings(wheel)] == []


@pytest.mark.parametrize(
    ("stray", "rule"),
    [
        ("fv_core/notes.txt", "no part of a library"),
        ("fv_core/tests/test_card.py", "holds tests"),
        ("tests/conftest.py", "no part of the package"),
        ("fv_core/absent.py", "more than its source"),
    ],
)
def test_a_stray_file_is_found(stray: str, rule: str, wheels: list[Path], tmp_path: Path) -> None:
    spoilt = tmp_path / wheels[0].name
    spoilt.write_bytes(wheels[0].read_bytes())
    with zipfile.ZipFile(spoilt, "a") as archive:
        archive.writestr(stray, "")
    assert any(rule in finding for finding in findings(spoilt))


@pytest.mark.parametrize("lost", ["fv_core/py.typed", "fv_core/cli/main.py"])
def test_a_lost_file_is_found(lost: str, wheels: list[Path], tmp_path: Path) -> None:
    spoilt = tmp_path / wheels[0].name
    with zipfile.ZipFile(wheels[0]) as whole, zipfile.ZipFile(spoilt, "w") as archive:
        for name in whole.namelist():
            if name != lost:
                archive.writestr(name, whole.read(name))
    assert any(finding.endswith(f"lacks {lost}") for finding in findings(spoilt))


def test_metadata_is_that_of_the_sources(wheels: list[Path]) -> None:
    for wheel in wheels:
        project = tomllib.loads((source_of(wheel) / "pyproject.toml").read_text())["project"]
        told = Parser().parsestr(metadata(wheel, "METADATA"))
        assert (told["Name"], told["Version"]) == (project["name"], project["version"])
        assert told["License-Expression"] == "Apache-2.0"
        assert told["Requires-Python"] == project["requires-python"]
        declared = project.get("scripts") or project["entry-points"]["fv"]
        assert all(
            f"{name} = {target}" in metadata(wheel, "entry_points.txt") for name, target in declared.items()
        )


@pytest.fixture(scope="module")
def installed(make_installation: Callable[..., Any], wheels: list[Path]) -> Any:
    """An environment with all wheels, and no way to the repository."""
    return make_installation(*wheels)


def test_environment_has_no_way_to_the_repository(installed: Any, tmp_path: Path) -> None:
    code = "import fv_core, fv_wan21, json, sys; print(json.dumps([fv_core.__file__, fv_wan21.__file__, sys.path]))"
    core, plugin, path = json.loads(installed.run("python", "-c", code, cwd=tmp_path).stdout)
    assert Path(core).is_relative_to(installed.site)
    assert Path(plugin).is_relative_to(installed.site)
    repository = {ROOT, ROOT / "plugins" / "fv-wan21"}
    assert not repository & {(tmp_path / place).resolve() for place in path}
    assert not list(installed.site.glob("*editable*"))


def test_installed_wheels_list_show_and_generate(installed: Any, tmp_path: Path) -> None:
    def told(*arguments: str) -> Any:
        return json.loads(installed.run("fv", *arguments, "--json", cwd=tmp_path).stdout)

    plugins = told("plugins", "--check")["plugins"]
    assert len(plugins) == len(ASSETS) - 1
    for plugin in plugins:
        assert (plugin["state"], plugin["editable"]) == ("ready", False)
        assert plugin["location"] == str(installed.site)
    assert {model["id"] for model in told("models")["models"]} == {
        offer["id"] for plugin in plugins for offer in plugin["provides"]
    }
    assert installed.run("fv", "validate", "--all", "--resolve", cwd=tmp_path)
    clip = installed.run("fv", "generate", "a red ball", "--seed", "1", "-o", "ball.mp4", cwd=tmp_path)
    assert clip.stdout == "ball.mp4\n"
    assert (tmp_path / "ball.mp4").stat().st_size > 1000


def test_installed_wheels_know_how_parity_stands(installed: Any, tmp_path: Path) -> None:
    shown = installed.run("fv", "models", "show", "wan21/micro", cwd=tmp_path).stdout
    assert re.search(rf"C0 +certified for cpu .*\({installed.site}/fv_wan21/assets/certificates/", shown), (
        shown
    )
    checked = installed.run("fv", "parity", "check", "wan21/micro", cwd=tmp_path).stdout
    assert len(re.findall(r"passed", checked)) >= 2, checked


def test_uninstalling_leaves_nothing(
    make_installation: Callable[..., Any], wheels: list[Path], tmp_path: Path
) -> None:
    lent = make_installation()
    before = {file.name for file in lent.site.iterdir()}
    lent.run("pip", "install", "--quiet", *wheels, cwd=tmp_path)
    assert {"fv_core", "fv_wan21"} < {file.name for file in lent.site.iterdir()}
    lent.run("fv", "plugins", "--check", cwd=tmp_path)
    ours = [package.replace("_", "-") for package in ASSETS]
    lent.run("pip", "uninstall", "--quiet", "--yes", *ours, cwd=tmp_path)
    assert {file.name for file in lent.site.iterdir()} == before
