"""Discovery: what metadata tells, without importing anything."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fv_core.plugins import PluginRecord, PluginState, Registry
from fv_core.plugins.discovery import discover, extras_with, requirement_versions
from fv_core.plugins.source import drift, source_records

Install = Callable[..., None]


def test_plugins_come_sorted_by_name_and_are_not_imported(install: Install) -> None:
    install("zebra", "raise RuntimeError")
    install("ape", "raise RuntimeError")
    names = [record.name for record in discover()]
    assert names == sorted(names)
    assert {"ape", "wan21", "zebra"} <= set(names)
    assert not {"fv_ape", "fv_zebra"} & sys.modules.keys()


def test_versions_are_those_of_the_requirements_that_hold_here(install: Install) -> None:
    lines = ("torch>=2", "nowhere-to-be-found", "ray; extra == 'x'", "pywin32; sys_platform == 'win32'")
    install("good", "fv_api = 1", requires=lines)
    versions = requirement_versions("fv-good")
    assert list(versions) == ["nowhere-to-be-found", "torch"]
    assert versions["nowhere-to-be-found"] == "absent"
    assert torch.__version__.startswith(versions["torch"].partition("+")[0])


def origin(site: Path, name: str, text: str) -> None:
    """Writes where the distribution came from, as an installer does (PEP 610)."""
    (site / f"fv_{name}-0.3.1.dist-info" / "direct_url.json").write_text(text)


def record_in(site: Path) -> PluginRecord:
    (record,) = discover([str(site)])
    return record


def test_location_is_the_folder_of_the_packages_or_of_the_editable_source(
    install_dists: Callable[..., Path], tmp_path: Path
) -> None:
    site = install_dists("good")
    assert (record_in(site).location, record_in(site).editable) == (str(site), False)
    source = tmp_path / "with space"
    source.mkdir()
    origin(site, "good", f'{{"url": "{source.as_uri()}", "dir_info": {{"editable": true}}}}')
    assert (record_in(site).location, record_in(site).editable) == (str(source), True)
    for other in ('{"url": "https://example.org/x.whl", "archive_info": {}}', "not json", "[]"):
        origin(site, "good", other)
        assert (record_in(site).location, record_in(site).editable) == (str(site), False)


def test_a_renamed_entry_point_in_an_editable_source_is_found_by_the_check(
    install_dists: Callable[..., Path], tmp_path: Path
) -> None:
    site = install_dists("good")
    source = shutil.copytree(Path(__file__).parents[1] / "dists" / "good", tmp_path / "source")
    origin(site, "good", f'{{"url": "{source.as_uri()}", "dir_info": {{"editable": true}}}}')
    assert drift(record_in(site)) is None
    project = source / "pyproject.toml"
    text = project.read_text()
    project.write_text(text.replace("good = ", "better = "))
    assert record_in(site).state is PluginState.DISCOVERED
    (record,) = Registry(discover([str(site)])).check()
    assert (record.state, record.code, record.provides) == (PluginState.BROKEN, "FV110", ())
    assert "better" in record.reason
    assert record.remedy == f"Install it again: pip install -e {source}."
    project.write_text("[project")
    assert Registry(discover([str(site)])).check()[0].code == "FV119"
    for other in ("[tool.x]\n", '[project]\nname = "x"\ndynamic = ["entry-points"]\n'):
        project.write_text(other)
        assert drift(record_in(site)) is None
    project.unlink()
    assert drift(record_in(site)) is None


def test_one_distribution_in_two_places_is_told_and_the_first_counts(
    install_dists: Callable[..., Path], tmp_path: Path
) -> None:
    site = install_dists("good")
    other = shutil.copytree(site, tmp_path / "other")
    (record,) = discover([str(site), str(other)])
    assert (record.location, record.state, record.code) == (str(site), PluginState.DISCOVERED, "")
    assert record.reason.startswith("fv-good is installed 2 times and the first one counts: ")
    assert str(other) in record.reason
    (ready,) = Registry([record]).check()
    assert (ready.state, ready.reason) == (PluginState.READY, record.reason)
    (other / "fv_good-0.3.1.dist-info" / "entry_points.txt").unlink()
    assert discover([str(other), str(site)]) == ()  # what Python would import declares no plugin
    assert discover([str(site), str(site)])[0].reason == ""


@pytest.mark.parametrize(
    ("requirement", "code"),
    [
        ("fv-core~=0.1.0", ""),
        ("FV.Core>=0.1", ""),
        ("fv-core", ""),
        ("fv-core>=1; extra == 'x'", ""),
        ("fv-core>=1; python_version < '3'", ""),
        ("other>=9", "FV114"),
        ("fv-core>=0.2", "FV109"),
        ("fv_core<0.1", "FV109"),
        ("fv-core=>0.1", "FV119"),
    ],
)
def test_the_core_that_a_plugin_needs_is_read_from_its_metadata(
    requirement: str, code: str, install_dists: Callable[..., Path]
) -> None:
    site = install_dists("good")
    metadata = site / "fv_good-0.3.1.dist-info" / "METADATA"
    metadata.write_text(
        f"Metadata-Version: 2.1\nName: fv-good\nVersion: 0.3.1\nRequires-Dist: {requirement}\n"
    )
    assert record_in(site).code == code


def test_a_prerelease_of_the_core_counts_as_its_version(
    install_dists: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install_dists("good")
    monkeypatch.setattr("fv_core.plugins.discovery.__version__", "0.1.1rc1")
    assert record_in(site).code == ""


def test_metadata_that_cannot_be_read_is_a_row_of_its_own(install_dists: Callable[..., Path]) -> None:
    site = install_dists("good", "raising_cards")
    (site / "fv_good-0.3.1.dist-info" / "METADATA").unlink()
    by_dist = {record.name: record for record in discover([str(site)])}
    assert (by_dist["good"].state, by_dist["good"].code) == (PluginState.BROKEN, "FV119")
    assert by_dist["raising-cards"].state is PluginState.DISCOVERED


@pytest.mark.parametrize("lines", ["[fv]\ngood\n", "[fv]\ngood = fv_good\n[other]\nbroken\n"])
def test_entry_points_that_cannot_be_read_are_a_row_of_their_own(
    lines: str, install_dists: Callable[..., Path]
) -> None:
    site = install_dists("good", "raising_cards")
    points = site / "fv_good-0.3.1.dist-info" / "entry_points.txt"
    points.write_text(lines)
    by_name = {record.name: record for record in discover([str(site)])}
    assert (by_name["fv-good"].state, by_name["fv-good"].code) == (PluginState.BROKEN, "FV119")
    assert by_name["raising-cards"].state is PluginState.DISCOVERED
    points.write_bytes(b"[other]\n\xff\xfe")
    assert [record.name for record in discover([str(site)])] == ["raising-cards"]


@pytest.mark.parametrize(
    ("requirement", "code", "remedy"),
    [
        ("torch>=99", "FV109", "pip install --upgrade torch fv-good"),
        ("torch>=1", "", ""),
        ("absent-codecs>=3; python_version > '3'", "FV114", 'pip install "absent-codecs>=3"'),
        ("absent-codecs; extra == 'more'", "", ""),
        ("wan-of-elsewhere; python_version < '3'", "", ""),
    ],
)
def test_every_requirement_is_compared_with_what_is_installed(
    requirement: str, code: str, remedy: str, install_dists: Callable[..., Path]
) -> None:
    site = install_dists("good")
    metadata = site / "fv_good-0.3.1.dist-info" / "METADATA"
    metadata.write_text(
        f"Metadata-Version: 2.1\nName: fv-good\nVersion: 0.3.1\nRequires-Dist: {requirement}\n"
    )
    record = record_in(site)
    assert record.code == code
    assert remedy in record.remedy


@pytest.mark.parametrize("value", ["fv_good:cards", "fv_good [more]", "..fv_good", "", "fv-good"])
def test_an_entry_point_that_names_no_package_is_corrected_not_reinstalled(
    value: str, install_dists: Callable[..., Path]
) -> None:
    site = install_dists("good")
    (site / "fv_good-0.3.1.dist-info" / "entry_points.txt").write_text(f"[fv]\ngood = {value}\n")
    record = record_in(site)
    assert (record.state, record.code) == (PluginState.BROKEN, "FV119")
    assert f"entry point '{value}': is not the name of a package" in record.reason
    assert "Correct it in the pyproject.toml of fv-good" in record.remedy


def test_a_name_that_one_distribution_declares_twice_is_one_row(install_dists: Callable[..., Path]) -> None:
    site = install_dists("good")
    (site / "fv_good-0.3.1.dist-info" / "entry_points.txt").write_text(
        "[fv]\ngood = fv_good\ngood = fv_other\n"
    )
    record = record_in(site)
    assert (record.state, record.code) == (PluginState.CONFLICT, "FV108")
    assert "is declared 2 times by one distribution: fv_good, fv_other" in record.reason
    assert "uninstall" not in record.remedy


def test_an_extra_need_not_be_named_like_its_module(install_dists: Callable[..., Path]) -> None:
    site = install_dists("good")
    metadata = site / "fv_good-0.3.1.dist-info" / "METADATA"
    lines = "".join(
        f"Provides-Extra: {extra}\nRequires-Dist: {dist}; extra == '{extra}'\n"
        for extra, dist in (("here", "torch"), ("codecs", "opencv-absent"), ("more", "absent-more"))
    )
    metadata.write_text(f"Metadata-Version: 2.1\nName: fv-good\nVersion: 0.3.1\n{lines}")
    assert extras_with("fv-good", "cv2") == ("codecs", "more")
    assert extras_with("fv-good", "absent_more.io") == ("more",)


def test_a_malformed_source_of_an_installed_plugin_is_to_be_corrected(
    install_dists: Callable[..., Path], tmp_path: Path
) -> None:
    site = install_dists("good")
    source = shutil.copytree(Path(__file__).parents[1] / "dists" / "good", tmp_path / "source")
    origin(site, "good", f'{{"url": "{source.as_uri()}", "dir_info": {{"editable": true}}}}')
    (source / "pyproject.toml").write_text("[project")
    (record,) = Registry(discover([str(site)])).check()
    assert (record.code, record.remedy) == ("FV119", f"Correct {source / 'pyproject.toml'}.")


@pytest.mark.parametrize("dependencies", ['["torch=>1"]', "3", '"torch"'])
def test_dependencies_of_a_source_that_cannot_be_read_are_a_finding(
    dependencies: str, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "fv-x"\ndependencies = {dependencies}\nentry-points.fv = {{x = "fv_x"}}\n'
    )
    (record,) = source_records(tmp_path)
    assert (record.state, record.code) == (PluginState.BROKEN, "FV119")
