"""The import contracts hold, and each is broken by an import that it forbids, tried on a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lint_imports(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"]
    return subprocess.run(
        [*command, "--no-logo", *options],
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": str(root),
        },  # before the editable installs, so that a copy is what is read
        capture_output=True,
        text=True,
    )


def broken_contracts(output: str) -> list[str]:
    return [line.removesuffix(" BROKEN") for line in output.splitlines() if line.endswith(" BROKEN")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Configuration and sources without anything else."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ignore = shutil.ignore_patterns("__pycache__", "assets")
    shutil.copytree(ROOT / "fv_core", tmp_path / "fv_core", ignore=ignore)
    for package in ROOT.glob("plugins/*/fv_*"):
        shutil.copytree(package, tmp_path / package.name, ignore=ignore)
    return tmp_path


def test_the_tree_keeps_every_contract() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


# Case -> the contract, the module that gets the line at its end, the line. Imports inside functions count too.
FORBIDDEN = {
    "loop imports runtime": ("Layers of core", "fv_core/loop/work.py", "import fv_core.runtime.engine"),
    "program imports card": ("Layers of core", "fv_core/program/program.py", "import fv_core.card.card"),
    "a package without a layer": ("Layers of core", "fv_core/helpers/__init__.py", ""),
    "core imports a plugin": ("Core never imports a plugin", "fv_core/runtime/engine.py", "import fv_wan21"),
    "a plugin imports runtime": (
        "Plugins import contracts only",
        "fv_wan21/card.py",
        "import fv_core.runtime.engine",
    ),
    "a plugin imports the loader": (
        "Plugins import contracts only",
        "fv_wan21/__init__.py",
        "import fv_core.plugins",
    ),
    "a card imports torch": ("Contracts are free of torch and numpy", "fv_core/card/card.py", "import torch"),
    "a request imports numpy": (
        "Contracts are free of torch and numpy",
        "fv_core/request/used.py",
        "import numpy",
    ),
    "a lazy import of torch": (
        "The command line imports neither torch nor numpy itself",
        "fv_core/cli/main.py",
        "def lazy() -> None:\n    import torch",
    ),
    "a plugin imports the ladder": (
        "Plugins import contracts only",
        "fv_wan21/reference.py",
        "import fv_core.parity.ladder",
    ),
    "parity imports the kit": ("Layers of core", "fv_core/parity/suite.py", "import fv_core.testing"),
    "a gate imports pytest": (
        "Only the author's kit imports pytest",
        "fv_core/parity/gates.py",
        "import pytest",
    ),
    "a second reader of metadata": (
        "One module reads installed metadata",
        "fv_core/runtime/engine.py",
        "import importlib_metadata",
    ),
}


@pytest.mark.parametrize("case", FORBIDDEN)
def test_a_forbidden_import_breaks_its_contract(case: str, tree: Path) -> None:
    contract, module, line = FORBIDDEN[case]
    (tree / module).parent.mkdir(exist_ok=True)
    with (tree / module).open("a") as source:
        source.write(f"\n\n{line}\n")
    result = lint_imports(tree, "--no-cache")
    assert contract in broken_contracts(result.stdout), result.stdout + result.stderr
    assert result.returncode == 1


def test_a_cycle_inside_the_runtime_breaks_its_contract(tree: Path) -> None:
    for name, other in (("first", "second"), ("second", "first")):
        (tree / f"fv_core/runtime/{name}.py").write_text(f"import fv_core.runtime.{other}\n")
    result = lint_imports(tree, "--no-cache")
    assert broken_contracts(result.stdout) == ["No cycles inside parity and the runtime"], (
        result.stdout + result.stderr
    )
