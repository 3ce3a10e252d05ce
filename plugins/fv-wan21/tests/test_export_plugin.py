"""A run as a plugin: its wheel brings the weights, and installed elsewhere it makes the very clips of the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import torch
from safetensors.torch import load_file

import fv_core.training.distribution as distribution
from fv_core.card import Provenance
from fv_core.cli.export import export
from fv_core.cli.output import Out
from fv_core.errors import TrainError
from fv_core.plugins import find_card
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.training.distribution import export_plugin
from fv_core.training.export import write_model_folder
from fv_core.weights.store import locate

CLIPS = """
import hashlib, json, sys, torch
from fv_core import Engine, OutputSpec, Request
from fv_core.plugins import find_card
torch.set_num_threads(1)
told = {}
for name in sys.argv[1:]:
    card = find_card(name)
    with Engine([card], device="cpu") as engine:
        request = Request(prompt="a red circle", model=card.model_id, seed=3, size=(16, 16), frames=5, steps=2,
                          output=OutputSpec(keep=("latent",)))
        clip = engine.run(request)
    made = clip.frames.tobytes() + clip.tensors["latent"].numpy().tobytes()
    told[name] = hashlib.sha256(made).hexdigest()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run, whose model is the base's with every weight moved."""
    folder, card = tmp_path_factory.mktemp("run") / "model", find_card("wan21/tiny")
    instance = ModelInstance(
        card, device=torch.device("cpu"), dtype=torch.float32, folder=locate(card, None), offload=Offload.NONE
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in instance.component("transformer").module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    made = Provenance(data="shapes", data_digest="0" * 64, steps=2, seed=5, command="fv train a.toml")
    write_model_folder(folder, instance, summary="wan21/tiny after 2 steps of finetune", made=made)
    yield folder.parent
    instance.close()


def python(*arguments: str | Path, path: Path | None = None, folder: Path | None = None) -> str:
    """What a process of its own prints, with the packages in `path` beside those that are installed."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **({"PYTHONPATH": str(path)} if path else {})}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_elsewhere_it_makes_the_clips_of_the_run(run: Path, tmp_path: Path) -> None:
    """Through the command and a wheel; the base is the control. A repository that ignores weights keeps none out."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.safetensors\n")
    folder, site = tmp_path / "fv-circles", tmp_path / "site"
    command = [str(run), "--format", "plugin", "--dtype", "float32", "-o", str(folder)]
    export.main(command, obj=Out(), standalone_mode=False)
    python("-m", "hatchling", "build", "-t", "wheel", folder=folder)
    (wheel,) = (folder / "dist").glob("fv_circles-0.1.0-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    told = json.loads(python("-c", CLIPS, "circles/tiny", run, "wan21/tiny", path=site))
    assert told["circles/tiny"] == told[str(run)] != told["wan21/tiny"]


def test_weights_are_bf16_and_the_readme_has_the_recipe(run: Path, tmp_path: Path) -> None:
    folder = export_plugin(str(run), tmp_path / "fv-circles", name="circles", dtype="bfloat16")
    (file,) = (folder / "fv_circles/weights/transformer").glob("*.safetensors")
    assert {tensor.dtype for tensor in load_file(file).values()} == {torch.bfloat16}
    readme = (folder / "README.md").read_text()
    assert "| precision | bfloat16 |" in readme and "wan21/tiny after 2 steps of finetune." in readme
    assert "| trained | 2 steps, seed 5 |" in readme and "`fv train a.toml`" in readme
    assert "@" not in readme and "fv-wan21~=0.1.0" in (folder / "pyproject.toml").read_text()


def test_a_card_that_comes_back_as_another_is_not_left(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = distribution._CARD.replace("checkpoint=None,", 'checkpoint=None, version="9",')
    monkeypatch.setattr(distribution, "_CARD", other)
    with pytest.raises(TrainError, match=r"FV707.*comes back changed"):
        export_plugin(str(run), tmp_path / "fv-circles", name="circles", dtype="bfloat16")
    monkeypatch.setattr(distribution, "_CARD", "import absent_package")
    with pytest.raises(TrainError, match=r"FV707.*absent_package"):
        export_plugin(str(run), tmp_path / "fv-circles", name="circles", dtype="bfloat16")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["wan21", "core", "9lives"])
def test_a_name_that_is_taken_or_none_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    command = [str(run), "--format", "plugin", "-o", str(tmp_path / f"fv-{name}")]
    with pytest.raises(click.UsageError, match=name):
        export.main(command, obj=Out(), standalone_mode=False)
    assert not list(tmp_path.iterdir())


def test_a_lora_takes_no_precision(run: Path, tmp_path: Path) -> None:
    command = [str(run), "--format", "lora", "--dtype", "float16", "-o", str(tmp_path / "lora")]
    with pytest.raises(click.UsageError, match="--dtype"):
        export.main(command, obj=Out(), standalone_mode=False)
