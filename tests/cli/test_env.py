"""`fv env` tells what a report needs, whatever is broken."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core import __version__

Fv = Callable[..., Any]


def test_env_is_a_document(fv: Fv, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path / "fv"))
    (tmp_path / "fv" / "jobs").mkdir(parents=True)
    (tmp_path / "fv" / "jobs" / "one").write_bytes(b"12345")
    document = fv("env", "--json").json
    paths = {one["name"]: (one["path"], one["bytes"]) for one in document["paths"]}
    assert (document["fv"], document["threads"]) == (__version__, torch.get_num_threads())
    assert document["python"].startswith(platform.python_version())
    assert document["versions"]["torch"] == torch.__version__
    assert document["versions"].keys() >= {"av", "click", "diffusers", "fv-core", "transformers"}
    assert paths["FV_HOME"] == (str(tmp_path / "fv"), 5)
    assert paths["settings here"] == (str(work / "fv.toml"), None)
    assert paths["hub cache"] == (str(tmp_path / "home/.cache/huggingface/hub"), None)
    assert document["variables"] == {"FV_HOME": os.environ["FV_HOME"]}
    assert document["torch_error"] is None
    plugin = next(one for one in document["plugins"] if one["name"] == "wan21")
    assert (plugin["dist"], plugin["state"], plugin["reason"]) == ("fv-wan21", "ready", "")


def test_env_lists_the_devices_of_torch(fv: Fv) -> None:
    devices = fv("env", "--json").json["devices"]
    assert [one["name"] for one in devices if one["name"].startswith("cuda")] == [
        f"cuda:{index}" for index in range(torch.cuda.device_count())
    ]
    assert devices[-1]["name"] == "cpu"
    assert all(0 < one["free_bytes"] <= one["total_bytes"] for one in devices)


def test_env_is_text(fv: Fv, work: Path) -> None:
    (work / "fv.toml").write_text("# nothing")
    told = fv("env")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith(f"fv {__version__}, Python {platform.python_version()}")
    for section in ("versions", "devices", "paths", "variables", "plugins"):
        assert f"\n{section}\n  " in told.out
    assert f"{work / 'fv.toml'}  (9 B)" in told.out
    assert "wan21 fv-wan21 0.1.0, ready" in " ".join(told.out.split())


def test_env_tells_of_a_broken_plugin(fv: Fv, broken_plugin: str) -> None:
    told = fv("env")
    assert told.code == 0
    assert "later fv-later 2.5, incompatible error[FV103]: " in " ".join(told.out.split())


def test_env_survives_a_torch_that_does_not_load(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ImportError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setattr("fv_core.cli.env.usable_devices", broken)
    told = fv("env")
    assert told.code == 0
    assert "torch  ImportError: libcudart.so.13: cannot open shared object file" in told.out
    assert fv("env", "--json").json["torch_error"].startswith("ImportError")
