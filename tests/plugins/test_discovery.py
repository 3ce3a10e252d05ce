"""Discovery: what metadata tells, without importing anything."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fv_core.plugins import PluginRecord, PluginState, Registry
from fv_core.plugins.discovery import discover, requirement_versions
from fv_core.plugins.source import drift

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
        ("other>=9", ""),
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
