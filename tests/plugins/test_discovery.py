"""Discovery: what metadata tells, without importing anything."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from fv_core.plugins.discovery import discover, requirement_versions

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
