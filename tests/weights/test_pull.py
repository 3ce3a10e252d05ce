"""Pulling onto a disk that is full or becomes full, and what is said of it. The transfers are in test_weights.py."""

from __future__ import annotations

import errno
import hashlib
import shutil
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from fv_core.card import ModelCard, RecipeSpec
from fv_core.errors import FvError, ResourceError
from fv_core.weights import hub_files
from fv_core.weights.hub_errors import hub_errors
from fv_core.weights.hub_files import Meter, TransferStopped, partial_of, receive
from fv_core.weights.pull import pull
from fv_core.weights.pull_plan import PullFile, PullPlan
from fv_core.weights.pull_record import FileFacts

FACTS = FileFacts(path="vae/model.safetensors", bytes=10, digest=f"sha256:{'a' * 64}")
CARD = ModelCard(
    model_id="a/b",
    family="a",
    version="1",
    components={},
    loops={},
    programs={},
    recipe=RecipeSpec(assumes_loop="none/v1"),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("FV_HOME", str(tmp_path / "home"))
    return tmp_path / "hub"


def test_pull_that_cannot_fit_is_refused_with_both_figures(cache: Path) -> None:
    size = shutil.disk_usage(cache.parent).total * 2
    facts = FileFacts(path=FACTS.path, bytes=size, digest=FACTS.digest)
    plan = PullPlan(repo="a/b", revision="c" * 40, files=(PullFile(facts=facts, bytes_here=0),))
    with pytest.raises(
        ResourceError, match=rf"{size / 2**30:.1f} GiB are to be fetched, .* GiB free"
    ) as refusal:
        pull(CARD, plan, lambda done: None)
    assert refusal.value.code == "FV403"
    assert not cache.exists()


@pytest.mark.parametrize(("code", "kept"), [(errno.ENOSPC, False), (errno.ECONNRESET, True)])
def test_part_is_kept_unless_the_disk_is_full(monkeypatch: pytest.MonkeyPatch, code: int, kept: bool) -> None:
    def fail(*args: object, **options: object) -> None:
        raise OSError(code, "failed")

    monkeypatch.setattr(hub_files, "http_get", fail)
    partial = partial_of("a/b", FACTS)
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"12345")
    with pytest.raises(OSError, match="failed"):
        receive("a/b", "c" * 40, FACTS, Meter(0, lambda done: None))
    assert partial.exists() == kept


@pytest.mark.parametrize(
    ("raised", "code", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "FV403", "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "/cache"), "FV255", "/cache cannot be written"),
        (ConnectionResetError("reset"), "FV255", "the transfer failed (ConnectionResetError: reset)"),
    ],
)
def test_failures_of_the_machine_are_told(raised: OSError, code: str, reason: str) -> None:
    with pytest.raises(FvError) as told, hub_errors("a/b"):
        raise raised
    assert told.value.code == code
    assert reason in told.value.rule
    assert "a/b" in told.value.name


def test_cause_that_the_client_wraps_is_told() -> None:
    with pytest.raises(FvError) as told, hub_errors("a/b"):
        raise LocalEntryNotFoundError("check your connection") from OSError(errno.ENOSPC, "No space left")
    assert told.value.code == "FV403"


def test_stopped_meter_stops_every_transfer() -> None:
    seen: list[int] = []
    meter = Meter(5, seen.append)
    meter.add(2)
    meter.stop()
    with pytest.raises(TransferStopped):
        meter.add(1)
    assert seen == [7]


@pytest.mark.parametrize(("served", "whole"), [(b"right", True), (b"wrong", False)])
def test_part_of_another_content_is_fetched_anew(
    served: bytes, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = FileFacts(path="f", bytes=5, digest=f"sha256:{hashlib.sha256(b'right').hexdigest()}")
    partial = partial_of("a/b", facts)
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"stale")
    monkeypatch.setattr(hub_files, "http_get", lambda url, file, **options: file.write(served))
    total: list[int] = []
    if whole:
        receive("a/b", "c" * 40, facts, Meter(0, total.append))
        assert partial.parent.joinpath(facts.digest.removeprefix("sha256:")).read_bytes() == b"right"
    else:
        with pytest.raises(FvError, match="another content"):
            receive("a/b", "c" * 40, facts, Meter(0, total.append))
    assert not partial.exists()
    assert total[:2] == [5, 0]  # the stale part is not counted twice
