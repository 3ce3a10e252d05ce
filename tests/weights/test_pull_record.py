"""Records of pulls: what is damaged under fv's home is one error, and no listing ends with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fv_core.cli.presence import Presence, presence
from fv_core.errors import WeightsError
from fv_core.plugins import find_card
from fv_core.weights.pull_record import PullRecord, read_record, write_record

MODEL = "wan21/t2v-1.3b"
RECORD = PullRecord(repo="a/b", revision="0" * 40, files=())


def file_instead_of_home(home: Path) -> None:
    home.write_text("x")


def folder_instead_of_record(home: Path) -> None:
    (home / "weights" / "wan21--t2v-1.3b.json").mkdir(parents=True)


def containing(data: bytes) -> Callable[[Path], None]:
    def damage(home: Path) -> None:
        (home / "weights").mkdir(parents=True)
        (home / "weights" / "wan21--t2v-1.3b.json").write_bytes(data)

    return damage


DAMAGES = {
    "a file in place of the home": file_instead_of_home,
    "a folder in place of the record": folder_instead_of_record,
    "no text": containing(b"\xff\xfe"),
    "no JSON": containing(b"\0"),
    "another document": containing(b"[1]"),
    "brackets without end": containing(b"[" * 100_000),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_record_is_one_error_and_no_listing_ends_with_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    DAMAGES[kind](home)
    monkeypatch.setenv("FV_HOME", str(home))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(WeightsError) as caught:
        read_record(MODEL)
    assert (caught.value.code, str(home) in caught.value.message) == ("FV253", True)
    assert presence(find_card(MODEL)) is Presence.NOT_HERE


@pytest.mark.parametrize("kind", list(DAMAGES)[:2])
def test_a_record_that_cannot_be_written_is_one_error(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DAMAGES[kind](tmp_path / "home")
    monkeypatch.setenv("FV_HOME", str(tmp_path / "home"))
    with pytest.raises(WeightsError) as caught:
        write_record(MODEL, RECORD)
    assert caught.value.code == "FV253"


def test_a_record_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path / "home"))
    assert read_record(MODEL) is None
    for _ in range(2):
        write_record(MODEL, RECORD)
    assert read_record(MODEL) == RECORD
