"""References: `module:attr` strings, resolved or refused with one error."""

from __future__ import annotations

from pathlib import Path

import pytest

from fv_core.errors import FvError, PluginError
from fv_core.plugins.reference import resolve_reference


def test_reference_gives_the_object_it_names() -> None:
    from fv_core.loop.flow_denoise import FlowDenoise

    assert resolve_reference("fv_core.loop.flow_denoise:FlowDenoise", owner="card") is FlowDenoise


@pytest.mark.parametrize(
    "reference", ["absent.module:x", "fv_core.errors:Absent", "fv_core.errors", ":x", "", "a b:c"]
)
def test_what_does_not_resolve_is_refused_by_name(reference: str) -> None:
    with pytest.raises(PluginError) as caught:
        resolve_reference(reference, owner="card toy/tiny loop denoise")
    assert caught.value.code == "FV105"
    assert "toy/tiny" in caught.value.message
    assert repr(reference) in caught.value.message


def test_an_import_leaves_the_process_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "restless_module.py").write_text("import os\nos.chdir('/')\nvalue = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert resolve_reference("restless_module:value", owner="x") == 1
    assert Path.cwd() == tmp_path


def test_a_base_exception_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaving_module.py").write_text("raise GeneratorExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FvError) as caught:
        resolve_reference("leaving_module:value", owner="x")
    assert caught.value.code == "FV105"
