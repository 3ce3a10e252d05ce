"""The distributions move in lock step: one version, matching pins and names, every plugin known everywhere."""

from __future__ import annotations

import ast
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from importlib_metadata import packages_distributions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fv_core

ROOT = Path(__file__).parents[1]
DISTS = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]


def read(dist: Path) -> dict[str, Any]:
    return tomllib.loads((dist / "pyproject.toml").read_text())


def findings(root: Path) -> list[str]:
    """Everything in which the distributions under `root` are out of step."""
    core = read(root)
    found = []
    for folder in sorted(path.parent for path in root.glob("plugins/*/pyproject.toml")):
        found += [f"{folder.name}: {fault}" for fault in plugin_findings(folder, core)]
        if f"-e plugins/{folder.name}" not in (root / "requirements.txt").read_text().splitlines():
            found.append(f"{folder.name}: not in requirements.txt")
    return found


def plugin_findings(folder: Path, core: dict[str, Any]) -> list[str]:
    config = read(folder)
    project = config["project"]
    suffix = folder.name.removeprefix("fv-")
    package = "fv_" + suffix.replace("-", "_")
    pins = [r.specifier for r in map(Requirement, project["dependencies"]) if r.name == "fv-core"]
    linter = core["tool"]["importlinter"]
    linted = [
        contract.get("source_modules")
        if contract["name"].startswith("Plugins")
        else contract["forbidden_modules"]
        for contract in linter["contracts"]
        if contract["name"] in ("Core never imports a plugin", "Plugins import contracts only")
    ]
    version = core["project"]["version"]
    rules = {
        "name differs from the folder": project["name"] == folder.name == f"fv-{suffix}",
        "version differs from fv-core": project["version"] == version,
        "fv-core is not pinned to this version": pins == [Requirement(f"fv-core~={version}").specifier],
        "entry point is not <folder suffix> = fv_<suffix>": project["entry-points"]
        == {"fv": {suffix: package}},
        "requires-python differs from fv-core": project.get("requires-python")
        == core["project"]["requires-python"],
        "wheel ships another package": config["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        == [package],
        "ships no LICENSE": (folder / "LICENSE").is_file(),
        "not in root_packages of import-linter": package in linter["root_packages"],
        "not in both plugin contracts of import-linter": all(package in modules for modules in linted),
    }
    return [fault for fault, holds in rules.items() if not holds]


def test_distributions_are_in_lock_step() -> None:
    assert len(DISTS) > 1
    assert findings(ROOT) == []
    assert read(ROOT)["project"]["version"] == fv_core.__version__


BREAKAGES = {
    "version": (
        "plugins/fv-wan21/pyproject.toml",
        'version = "0.1.0"',
        'version = "0.1.1"',
        "version differs",
    ),
    "core version": ("pyproject.toml", 'version = "0.1.0"', 'version = "0.2.0"', "not pinned"),
    "pin": ("plugins/fv-wan21/pyproject.toml", "fv-core~=0.1.0", "fv-core>=0.1.0", "not pinned"),
    "entry point": ("plugins/fv-wan21/pyproject.toml", 'wan21 = "', 'wan = "', "entry point"),
    "package": (
        "plugins/fv-wan21/pyproject.toml",
        'packages = ["fv_wan21"]',
        'packages = ["wan21"]',
        "wheel",
    ),
    "python": ("plugins/fv-wan21/pyproject.toml", "requires-python", "classifiers", "requires-python"),
    "requirements": ("requirements.txt", "-e plugins/fv-wan21", "", "requirements.txt"),
    "root packages": (
        "pyproject.toml",
        '"fv_wan21", "fv_wan_causal"]\ninclude',
        "]\ninclude",
        "root_packages",
    ),
    "contract": (
        "pyproject.toml",
        'source_modules = ["fv_bagel"',
        "source_modules = []  # ",
        "both plugin contracts",
    ),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_distribution_out_of_step_is_found(breakage: str, tmp_path: Path) -> None:
    file, old, new, fault = BREAKAGES[breakage]
    for name in ("pyproject.toml", "requirements.txt", "plugins/fv-wan21/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new))
    assert any(fault in finding for finding in findings(tmp_path))


@pytest.mark.parametrize("dist", DISTS, ids=lambda dist: read(dist)["project"]["name"])
def test_a_distribution_lists_what_it_imports(dist: Path) -> None:
    project = read(dist)["project"]
    extras = project.get("optional-dependencies", {})
    owners = {package: [read(other)["project"]["name"]] for other in DISTS for package in packages(other)}
    owners = {**packages_distributions(), **owners}  # an editable install does not tell its packages
    for package in packages(dist):
        for source in (dist / package).rglob("*.py"):
            # A package named as an extra is for those who install it.
            folder = source.relative_to(dist / package).parts[0]
            extra = extras.get({"training": "train"}.get(folder, folder), [])
            lines = [*project["dependencies"], *extra, project["name"]]
            declared = {canonicalize_name(Requirement(line).name) for line in lines}
            for name in imported(source) - sys.stdlib_module_names:
                assert declared & {canonicalize_name(owner) for owner in owners[name]}, (
                    f"{source} imports {name}"
                )


def packages(dist: Path) -> list[str]:
    shipped: list[str] = read(dist)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return shipped


def imported(source: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("dist", DISTS, ids=lambda dist: read(dist)["project"]["name"])
def test_the_lock_pins_every_dependency_within_its_bounds(dist: Path) -> None:
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines()]
    locked = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    assert not [pin for pin in pins if "+" in str(pin.specifier)], "a local label fits one build only"
    project = read(dist)["project"]
    extras = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    for needed in map(Requirement, [*project["dependencies"], *extras]):
        if not needed.name.startswith("fv-"):
            assert needed.specifier.contains(locked[canonicalize_name(needed.name)]), needed


@pytest.mark.parametrize("dist", DISTS, ids=lambda dist: read(dist)["project"]["name"])
def test_every_distribution_has_a_readme_and_a_changelog_entry(dist: Path) -> None:
    project = read(dist)["project"]
    assert (dist / project["readme"]).read_text().startswith("# ")
    assert f"## [{project['version']}]" in (dist / "CHANGELOG.md").read_text()
