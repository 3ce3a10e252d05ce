"""The kit's own cards and interceptors, importable by the names in their records, and pytest as authors run it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

Outcomes: TypeAlias = Mapping[str, Mapping[str, set[str]]]
"""Class without its `Test` -> outcome -> names of tests."""


@pytest.fixture(scope="session")
def kit() -> Iterator[Any]:
    """The module `kit` beside this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        yield importlib.import_module("kit")


@pytest.fixture(scope="session")
def interceptors() -> Iterator[Any]:
    """The module `interceptors` beside this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        yield importlib.import_module("interceptors")


@pytest.fixture(scope="session")
def run_as_author(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcomes]:
    """Runs a test file as an author would, in a folder of its own, and tells what came of it."""

    def run(source: str) -> Outcomes:
        folder = tmp_path_factory.mktemp("author")
        (folder / "conftest.py").write_text('pytest_plugins = ["fv_core.testing"]\n')
        (folder / "test_author.py").write_text(source)
        path = os.pathsep.join([str(HERE), str(ROOT), *sys.path])
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report.xml"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
            outcome = next((child.tag for child in case), "passed")
            found[case.attrib["classname"].partition(".Test")[2]][outcome].add(case.attrib["name"])
        return found

    return run
