"""`fv plugins new` writes a plugin that loads, is valid, and passes the tests that come with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fv_core.cli import skeleton

Fv = Callable[..., Any]
ROOT = Path(__file__).parents[2]


def install(folder: Path, site: Path) -> dict[str, str]:
    """The variables of a process in which the plugin in `folder` is installed, as an editable install leaves it."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata)
    ((name, module),) = project["entry-points"]["fv"].items()
    (info / "entry_points.txt").write_text(f"[fv]\n{name} = {module}\n")
    path = os.pathsep.join((str(site), str(folder)))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def test_the_skeletons_are_the_tutorial_plugins() -> None:
    stored = json.loads((ROOT / "fv_core/cli/skeletons.json").read_text())
    command = "python -m fv_core.cli.skeleton docs > fv_core/cli/skeletons.json"
    assert stored == skeleton.collect(ROOT / "docs"), f"out of date: {command}"


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize(("kind", "name"), [("model", "my-model"), ("interceptor", "every2")])
def test_a_new_plugin_is_sound_and_its_tests_pass(
    fv: Fv, work: Path, tmp_path: Path, kind: str, name: str
) -> None:
    told = fv("plugins", "new", name, "--kind", kind)
    folder = work / f"fv-{name}"
    assert (told.code, told.out) == (0, f"fv-{name}\n")
    assert f"`fv plugins check fv-{name}`" in told.err
    checked = fv("plugins", "check", folder, "--quick")
    assert (checked.code, checked.err) == (0, "")
    assert checked.out.startswith(
        f"{name}: fv-{name} 0.1.0, ready, brings 1 {'card' if kind == 'model' else kind}"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=folder, env=install(folder, tmp_path / "site"), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


def test_clips_of_a_new_model_advertise_no_model_of_another_family(
    fv: Fv, work: Path, tmp_path: Path
) -> None:
    fv("plugins", "new", "mine")
    asked = ["generate", "cat", "--model", "mine/tiny", "--seed", "1", "--steps", "1", "--frames", "5"]
    done = subprocess.run(
        [sys.executable, "-m", "fv_core", *asked, "--device", "cpu", "-o", "out.npy"],
        cwd=work, env=install(work / "fv-mine", tmp_path / "site"), capture_output=True, text=True,
    )  # fmt: skip
    told = "note: mine/tiny is untrained: its clips are noise\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "out.npy\n", told)


@pytest.mark.parametrize("kind", skeleton.KINDS)
def test_nothing_of_the_tutorial_is_left_in_it(fv: Fv, work: Path, kind: str) -> None:
    files = skeleton.write(kind, "zeta.two-three", work / "made")
    assert files == sorted(path for path in (work / "made").rglob("*") if path.is_file())
    package = work / "made" / "fv_zeta_two_three" / "__init__.py"
    assert package in files
    for path in files:
        text = f"{path.name}\n{path.read_text()}"
        assert not re.search(r"\becho\b|_echo|halfskip|tutorial|guide\b|@NAME@|@WORD@", text), path


@pytest.mark.parametrize("kind", skeleton.KINDS)
def test_it_ships_its_licence_and_links_to_nothing_that_is_not_in_it(work: Path, kind: str) -> None:
    skeleton.write(kind, "mine", work / "made")
    project = tomllib.loads((work / "made/pyproject.toml").read_text())
    assert (project["project"]["license"], project["project"]["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "/LICENSE" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert (work / "made/LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    links = [link for page in work.rglob("*.md") for link in re.findall(r"\]\(([^)]+)\)", page.read_text())]
    assert [link for link in links if not link.startswith("https://")] == []


def test_a_place_can_be_named_and_is_never_written_over(fv: Fv, work: Path) -> None:
    assert fv("plugins", "new", "mine", work / "deep" / "place").out == f"{work}/deep/place\n"
    kept = (work / "deep/place/README.md").read_text()
    (work / "file").touch()
    for place in ("deep/place", "file"):
        told = fv("plugins", "new", "other", place)
        assert (told.code, told.out) == (2, "")
        assert told.err.startswith(f"error[FV315]: folder '{place}': is there already\n")
    assert fv("plugins", "new", "other", "file/under").err.startswith(
        "error[FV315]: folder 'file/under': cannot be"
    )
    assert (work / "deep/place/README.md").read_text() == kept


@pytest.mark.parametrize("name", ["Mine", "my model", "", "9x", "-x", "a--b", "a/b", "é", "mine-", "../x"])
def test_what_is_no_name_is_refused(fv: Fv, work: Path, name: str) -> None:
    told = fv("plugins", "new", "--", name)
    assert (told.code, told.out) == (2, "")
    assert "is not a name for a plugin" in told.err
    assert list(work.iterdir()) == []


def test_the_name_of_an_installed_plugin_is_refused(fv: Fv, work: Path) -> None:
    assert "a plugin wan21 is installed" in fv("plugins", "new", "wan21").err
    assert list(work.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "taken"),
    [("core", "the distribution fv-core"), ("bound", "the package fv_bound"), ("good", "a plugin good")],
)
def test_a_name_that_is_taken_is_refused(
    fv: Fv,
    work: Path,
    name: str,
    taken: str,
    install_dists: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = install_dists("good")
    (site / "fv_bound.py").touch()
    told = fv("plugins", "new", name)
    assert (told.code, told.out) == (2, "")
    assert f"{taken} is installed" in told.err
    assert list(work.iterdir()) == []
