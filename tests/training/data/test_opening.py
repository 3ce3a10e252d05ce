"""The data of a whole run: `fv train` tells of every file, fills the cache, and trains the same with it and without."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file

from fv_core.cli.main import run as fv
from fv_core.errors import FvError, TrainError
from fv_core.runtime.instance import ModelInstance
from fv_core.training import run
from fv_core.training.config import DataTable
from fv_core.training.contract import Bucket, DataContext, Latent, Method, Pixels, Sample
from fv_core.training.data.encoded import Encoded
from fv_core.training.data.encoder import Encoder
from fv_core.training.data.opening import open_data

CONFIG = """
model = "wan21/micro"
weights = "seed"
method = {name = "finetune"}
data = {name = "folder", path = "clips", buckets = [[5, 32, 32], [5, 32, 48]], cache = "features"}
train = {steps = 2, batch = 2, lr = 1e-3}
save = {dir = "%s"}
"""


@pytest.fixture
def config(data: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file that trains on four clips of two shapes; a fifth is too short."""
    for index, size in enumerate([(32, 32), (32, 48), (32, 32), (32, 48)]):
        data.clip(f"clips/{index}.mp4", frames=5 + index // 2, size=size, caption=f"square number {index}")
    data.clip("clips/short.mp4", frames=2)
    path = tmp_path / "train.toml"
    path.write_text(CONFIG % (tmp_path / "run"))
    return path


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a run's checkpoints."""
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        found |= {f"{path.relative_to(folder)} {name}": one for name, one in load_file(path).items()}
    return found


def test_a_run_with_a_cache_equals_one_without(config: Path, tmp_path: Path) -> None:
    """Latents and embeddings that are stored, found again, and computed at each step: the same weights to the bit."""
    trained = []
    for name, cache in [("filled", "features"), ("found", "features"), ("computed", "off")]:
        told = run.train(
            config,
            overrides=[f"data.cache={cache}", f"save.dir={tmp_path / name}", "data.caption_dropout=0.5"],
        )
        trained.append(weights(told.folder))
    assert trained[0] and trained[0].keys() == trained[1].keys() == trained[2].keys()
    for name, tensor in trained[0].items():
        assert torch.equal(tensor, trained[1][name]) and torch.equal(tensor, trained[2][name]), name


def test_with_a_cache_no_encoder_is_resident_while_it_trains(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for captions that are dropped."""
    loaded: list[tuple[str, ...]] = []
    component = ModelInstance.component

    def seen(self: ModelInstance, component_id: str) -> Any:
        found = component(self, component_id)
        loaded.append(self.loaded)
        return found

    monkeypatch.setattr(ModelInstance, "component", seen)
    monkeypatch.setattr(
        "fv_core.training.trainer.write_run_model", lambda *run: None
    )  # which reads all of it
    run.train(config, overrides=["data.caption_dropout=1.0"])
    assert {len(one) for one in loaded} == {1}
    assert list(dict.fromkeys(one[0] for one in loaded)) == ["vae", "text", "transformer"]


def test_what_becomes_of_the_data_is_told_before_the_first_step(config: Path, tmp_path: Path) -> None:
    notes: list[str] = []

    def note(text: str) -> None:
        assert not list((tmp_path / "run").glob("*.jsonl")), "a step was taken"
        notes.append(text)

    run.train(config, note=note)
    assert notes == [
        f"4 of 5 files are kept; 1 dropped: is too short; {tmp_path / 'run' / 'data.txt'} tells of each",
        "4 latents and 4 embeddings were computed, 0 were there",
    ]
    told = (tmp_path / "run" / "data.txt").read_text()
    assert "short.mp4  2" in told and "is too short: 2 frames at 8 fps, the shortest bucket has 5" in told


def test_a_dry_run_shows_the_tables_and_trains_nothing(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fv(["train", str(config), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["file", "frames", "size", "fps", "at", "8", "fps", "bucket"]
    assert lines[5].split()[:7] == ["short.mp4", "2", "32x32", "8", "2", "dropped", "is"]
    assert "4 of 5 files are kept; 1 dropped: is too short" in lines
    assert not (tmp_path / "run").exists()
    assert fv(["train", str(config), "--dry-run", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert [file["kept"] for file in files] == [True] * 4 + [False]
    assert files[1] == {
        "file": "1.mp4", "kept": True, "told": [], "frames": 5, "resampled": 5, "fps": 8.0, "size": [48, 32],
        "bucket": [5, 32, 48],
    }  # fmt: skip


def test_the_cache_can_be_filled_alone(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fv(["train", str(config), "--cache-only"]) == 0
    assert capsys.readouterr().out == "8 computed, 0 found\n"
    assert len(list((tmp_path / "features").rglob("*.safetensors"))) == 8
    assert fv(["train", str(config), "--cache-only", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["latents"], found["embeds"], found["found"]) == (0, 0, 8)
    assert fv(["train", str(config), "data.cache=off", "--cache-only"]) == 2
    assert "FV701" in capsys.readouterr().err


def test_a_run_goes_on_only_with_the_clips_that_it_began_with(config: Path, data: Any) -> None:
    """Another file would be another order of all of them."""
    run.train(config)
    more = ["train.steps=3", "data.cache=off"]  # where features are kept decides nothing
    (data.folder / "clips/0.txt").write_text("other words")
    with pytest.raises(TrainError) as caught:
        run.train(config, overrides=more, resume="latest")
    assert caught.value.code == "FV702" and "data.digest was" in caught.value.rule
    (data.folder / "clips/0.txt").write_text("square number 0")
    assert run.train(config, overrides=more, resume="latest").steps == 3


def test_wrong_settings_of_the_data_are_refused(config: Path) -> None:
    codes = {
        "data.buckets=[[6, 32, 32]]": "FV721",
        "data.path=nowhere": "FV720",
        "data.buckets=[[9, 32, 32]]": "FV722",
        "data.bucket=[[5, 32, 32]]": "FV701",
        "data.fps=0.0": "FV307",
    }
    for override, code in codes.items():
        with pytest.raises(FvError) as caught:
            run.plan(config, overrides=[override])
        assert caught.value.code == code


class Made:
    """A source that makes latents itself, for which there is nothing to encode."""

    def __len__(self) -> int:
        return 1

    def bucket(self, index: int) -> Bucket:
        return Bucket(frames=5, height=32, width=32)

    def sample(self, index: int, epoch: int) -> Sample:
        return Sample(id="made", caption="a square", content=Latent(mean=torch.ones(16, 2, 4, 4)))


def opened(
    made: Any, content: Any, data: Any, cache: str = "auto", fails: Sequence[str] = ("encoder",)
) -> Any:
    """The data of a method that takes `content`."""

    class Takes:
        takes_embeds = True

    Takes.content = content  # type: ignore[attr-defined]

    def encoder() -> Encoder:
        return cast(Encoder, None)

    context = DataContext(card=data.card, content=content, seed=0, folder=data.folder)
    return open_data(made, DataTable(name="any", cache=cache), cast(Method, Takes()), context, encoder)


def test_latents_that_a_source_made_stay_as_they_are(data: Any) -> None:
    (sample,) = [opened(Made(), Latent, data).source.sample(0, 0)]
    assert torch.equal(cast(Latent, sample.content).mean, torch.ones(16, 2, 4, 4))


def test_pixels_for_a_method_of_pixels_are_not_encoded(data: Any) -> None:
    data.clip("a.mp4")
    source = data.open()
    assert opened(source, Pixels, data).source is source


def test_files_are_cached_in_fvs_own_folder_and_procedures_are_not(
    data: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path / "home"))
    data.clip("a.mp4")
    stores = [
        cast(Encoded, opened(made, Latent, data, cache).source).store
        for made in (data.open(), Made())
        for cache in ("auto", "off", "here")
    ]
    folders = [None if store is None else store.folder for store in stores]
    here = data.folder / "here"
    assert folders == [tmp_path / "home" / "features", None, here, None, None, here]
