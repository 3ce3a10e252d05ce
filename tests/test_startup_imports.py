"""Starting up loads nothing heavy: each case is a process of its own that tells what its `sys.modules` held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fv_core.plugins import plugin_records

ROOT = Path(__file__).parents[1]
TENSORS = {"numpy", "torch"}
HEAVY = TENSORS | {
    "PIL",
    "asyncio",
    "av",
    "diffusers",
    "huggingface_hub",
    "rich",
    "safetensors",
    "transformers",
}
PLUGINS = {"fv_bagel", "fv_cosmos3", "fv_ltx2", "fv_wan21", "fv_wan_causal"}
TUTORIALS = [
    (file.parent, f"fv_{file.parent.name.removeprefix('fv-')}") for file in ROOT.glob("docs/*/pyproject.toml")
]
"""Plugins that are not installed: where they are, and their packages."""


def loaded_by(code: str, home: Path, **environment: str) -> set[str]:
    """Top-level modules that a new interpreter holds after `code`; it must exit with status 0."""
    report = home / "modules.json"
    tell = f"import atexit, json, sys; atexit.register(lambda: json.dump([*sys.modules], open({str(report)!r}, 'w')))\n"
    subprocess.run(
        [sys.executable, "-c", tell + code],
        cwd=home,
        env={**os.environ, "HOME": str(home), **environment},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return {name.partition(".")[0] for name in json.loads(report.read_text())}


def command(*arguments: str) -> str:
    return f"import sys; sys.argv = {['fv', *arguments]!r}; from fv_core.cli.main import main; main()"


@pytest.mark.parametrize(
    "code",
    ["import fv_core", "import fv_core.card", command("--help"), command("--version")],
    ids=["import fv_core", "import fv_core.card", "fv --help", "fv --version"],
)
def test_starting_loads_nothing_heavy_and_no_plugin(code: str, tmp_path: Path) -> None:
    loaded = loaded_by(code, tmp_path)
    assert "fv_core" in loaded
    assert not loaded & (HEAVY | PLUGINS | {"importlib_metadata"})


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "FV201"),
        ("generate", "--help"),
        ("models", "--json"),
        ("models", "show", "wan21/micro", "--json"),
        ("models", "show", "wan21/micro", "--schema"),
        ("plugins", "--check", "--json"),
        ("plugins", "show", "wan21"),
        ("validate", "--all"),
        ("validate", "--help"),
        ("config", "--json"),
        ("weights", "--help"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_tells_loads_nothing_heavy(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert not loaded_by(command(*arguments), tmp_path) & HEAVY


@pytest.mark.parametrize(
    "arguments", [("plugins",), ("plugins", "--json"), ("plugins", "--requirements")], ids=" ".join
)
def test_the_listing_of_plugins_imports_none(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert not loaded_by(command(*arguments), tmp_path) & (HEAVY | PLUGINS)


@pytest.mark.parametrize(
    ("place", "package"),
    [*((ROOT, record.module) for record in plugin_records()), *TUTORIALS],
    ids=[*(record.name for record in plugin_records()), *(package for _, package in TUTORIALS)],
)
def test_a_plugin_and_its_hooks_load_nothing_heavy(place: Path, package: str, tmp_path: Path) -> None:
    hooks = f"[hook for hook in vars({package}).values() if hasattr(hook, 'fv_impl')]"
    path = f"import sys; sys.path.append({str(place)!r})"
    code = f"{path}; import {package}; assert any(list(hook()) for hook in {hooks})"
    loaded = loaded_by(code, tmp_path)
    assert package in loaded
    assert not loaded & HEAVY


def test_a_listing_of_models_loads_the_plugin_that_offers_them(tmp_path: Path) -> None:
    assert loaded_by(command("models", "--json"), tmp_path) >= PLUGINS


def test_completion_loads_nothing_heavy_and_no_plugin(tmp_path: Path) -> None:
    loaded = loaded_by(command(), tmp_path, _FV_COMPLETE="bash_source")
    assert not loaded & (HEAVY | PLUGINS)


@pytest.mark.parametrize("words", ["fv generate --model wan21/", "fv models show w", "fv plugins show "])
def test_completing_an_id_loads_nothing_heavy(words: str, tmp_path: Path) -> None:
    asked = {"_FV_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert not loaded_by(command(), tmp_path, **asked) & HEAVY


@pytest.mark.parametrize("module", sorted(HEAVY - {"diffusers", "transformers"}))
def test_the_check_sees_a_heavy_import(module: str, tmp_path: Path) -> None:
    assert module in loaded_by(f"import fv_core.card\nimport {module}", tmp_path)
