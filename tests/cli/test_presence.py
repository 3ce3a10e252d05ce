"""A look at folders says what the weights store says, without the hub's client."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from fv_core.card import CheckpointManifest, ModelCard, derive
from fv_core.cli.presence import Presence, hub_cache, presence
from fv_core.errors import WeightsError
from fv_core.plugins import find_card
from fv_core.weights.pull_record import PullRecord, write_record
from fv_core.weights.store import locate

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = {
    "text_encoder": "model.safetensors",
    "transformer": "diffusion_pytorch_model.safetensors",
    "vae": "diffusion_pytorch_model.safetensors",
}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The 1.3B model's folder in a hub cache of its own, complete as far as names go, on branch main."""
    cache = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("FV_HOME", str(tmp_path / "fv"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    repo = cache / "models--Wan-AI--Wan2.1-T2V-1.3B-Diffusers"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    for folder, name in WEIGHTS.items():
        (repo / "snapshots" / COMMIT / folder).mkdir(parents=True)
        (repo / "snapshots" / COMMIT / folder / name).touch()
    (repo / "snapshots" / COMMIT / "tokenizer").mkdir()
    return repo


@pytest.fixture
def card() -> ModelCard:
    return find_card("wan21/t2v-1.3b")


def is_located(card: ModelCard) -> bool:
    try:
        return locate(card, None) is not None
    except WeightsError:
        return False


def test_a_complete_snapshot_is_here(repo: Path, card: ModelCard) -> None:
    assert presence(card) is Presence.HERE
    assert is_located(card)


@pytest.mark.parametrize("absent", ["tokenizer", "vae", "transformer/diffusion_pytorch_model.safetensors"])
def test_a_snapshot_with_a_hole_is_partly_here(repo: Path, card: ModelCard, absent: str) -> None:
    path = repo / "snapshots" / COMMIT / absent
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert presence(card) is Presence.PARTLY_HERE
    assert not is_located(card)


def test_no_snapshot_is_not_here(repo: Path, card: ModelCard) -> None:
    shutil.rmtree(repo)
    assert presence(card) is Presence.NOT_HERE
    assert not is_located(card)


def test_a_pinned_revision_counts_alone(repo: Path, card: ModelCard) -> None:
    assert card.checkpoint is not None
    for revision, expected in ((COMMIT, Presence.HERE), ("f" * 40, Presence.NOT_HERE)):
        pinned = derive(card, checkpoint=CheckpointManifest(repo=card.checkpoint.repo, revision=revision))
        assert presence(pinned) is expected
        assert is_located(pinned) == (expected is Presence.HERE)


def test_the_pulled_revision_counts_before_main(repo: Path, card: ModelCard) -> None:
    assert card.checkpoint is not None
    (repo / "refs" / "main").unlink()
    assert presence(card) is Presence.NOT_HERE
    write_record(card.model_id, PullRecord(repo=card.checkpoint.repo, revision=COMMIT, files=()))
    assert presence(card) is Presence.HERE
    assert is_located(card)


def test_what_needs_no_pull_tells_whether_it_is_trained(card: ModelCard) -> None:
    assert presence(find_card("wan21/micro")) is Presence.UNTRAINED
    assert presence(derive(card, checkpoint=None)) is Presence.EMBEDDED


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"HF_HOME": "/data/hf"},
        {"HF_HUB_CACHE": "~/cache"},
        {"HUGGINGFACE_HUB_CACHE": "/old/cache", "HF_HOME": "/data/hf"},
        {"XDG_CACHE_HOME": "/xdg"},
        {"HF_HOME": "$HOME/x"},
    ],
    ids=str,
)
def test_the_cache_is_where_the_client_has_it(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    theirs = importlib.util.find_spec("huggingface_hub.constants")
    assert theirs is not None
    assert theirs.loader is not None
    fresh = importlib.util.module_from_spec(theirs)  # constants are read once, at import
    theirs.loader.exec_module(fresh)
    assert hub_cache() == Path(fresh.HF_HUB_CACHE).expanduser()
