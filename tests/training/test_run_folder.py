"""A run's folder is a model to all commands, also of a process that has never heard of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fv_core.cli.main import run as fv
from fv_core.media import read_sidecar
from fv_core.plugins import registry
from fv_core.training.run import train

SMALL = ("--size", "16x16", "--frames", "5", "--steps", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    config = root / "tiny.toml"
    config.write_text(
        f"""
model = "wan21/micro"
weights = "seed"
method = {{name = "finetune"}}
data = {{name = "shapes", clips = 2}}
train = {{steps = 1, lr = 1e-2}}
save = {{dir = "{(root / "mine").as_posix()}"}}
"""
    )
    return train(config).folder


def test_a_recorded_clip_of_a_run_is_repeated_in_a_new_process(run: Path, tmp_path: Path) -> None:
    clip, again = tmp_path / "a.mp4", tmp_path / "b.mp4"
    assert fv(["generate", "a ball", "--model", str(run), *SMALL, "--sidecar", "-o", str(clip)]) == 0
    assert read_sidecar(Path(f"{clip}.json")).used.model_folder == str((run / "model").resolve())
    registry.default_registry.cache_clear()  # as in a new process: what folders there were is forgotten
    assert fv(["generate", "--from", f"{clip}.json", "-o", str(again)]) == 0
    assert clip.read_bytes() == again.read_bytes()


def test_a_recorded_clip_of_a_run_that_is_gone_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, clip = tmp_path / "gone", tmp_path / "a.mp4"
    shutil.copytree(run, gone)
    assert fv(["generate", "a ball", "--model", str(gone), *SMALL, "--sidecar", "-o", str(clip)]) == 0
    shutil.rmtree(gone)
    registry.default_registry.cache_clear()
    assert fv(["generate", "--from", f"{clip}.json", "-o", str(tmp_path / "b.mp4")]) == 2
    assert str(gone / "model") in capsys.readouterr().err


def test_an_installed_model_has_no_folder(tmp_path: Path) -> None:
    clip = tmp_path / "a.mp4"
    assert fv(["generate", "a ball", "--model", "wan21/micro", *SMALL, "--sidecar", "-o", str(clip)]) == 0
    assert read_sidecar(Path(f"{clip}.json")).used.model_folder == ""
