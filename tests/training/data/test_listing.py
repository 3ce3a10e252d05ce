"""The three layouts, and that nothing which lies in a data set goes unmentioned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fv_core.errors import TrainError
from fv_core.training.data.listing import Entry, listed


def write(folder: Path, *names: str, caption: str = "a caption") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(caption if path.suffix == ".txt" else "bytes")


def told(entries: list[Entry]) -> dict[str, str]:
    """The caption of each entry, or what is wrong with it."""
    return {entry.id: entry.problem or entry.caption for entry in entries}


def refused(path: Path) -> TrainError:
    with pytest.raises(TrainError) as caught:
        listed(path)
    assert caught.value.code == "FV720"
    return caught.value


def test_a_folder_lists_clips_below_it_with_the_captions_beside_them(tmp_path: Path) -> None:
    write(tmp_path, "b.mp4", "b.txt", "a/c.PNG", "a/c.txt", caption="  two\nlines \n")
    assert told(listed(tmp_path)) == {"a/c.PNG": "two\nlines", "b.mp4": "two\nlines"}
    assert [entry.path for entry in listed(tmp_path)] == [tmp_path / "a/c.PNG", tmp_path / "b.mp4"]


def test_everything_else_in_a_folder_is_told(tmp_path: Path) -> None:
    write(tmp_path, "alone.mp4", "words.txt", "old.avi", ".DS_Store", ".git/config")
    write(tmp_path, "empty.webm", "empty.txt", caption=" \n")
    write(tmp_path, "odd.mp4")
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe\xfa")
    problems = told(listed(tmp_path))
    assert set(problems) == {"alone.mp4", "words.txt", "old.avi", "empty.webm", "odd.mp4"}
    assert problems["alone.mp4"] == "has no caption: there is no alone.txt beside it"
    assert problems["words.txt"] == "is a caption with no clip of the same name"
    assert problems["old.avi"].startswith("is no file of a kind that is read: .jpeg")
    assert problems["empty.webm"] == "has an empty caption"
    assert "odd.txt cannot be read" in problems["odd.mp4"]


def test_a_jsonl_file_lists_files_relative_to_itself(tmp_path: Path) -> None:
    lines = [
        {"file": "clips/a.mp4", "caption": "one", "author": "somebody"},
        {"file": "clips/a.mp4", "caption": "the same clip in other words"},
        {"file": "b.png", "caption": ""},
        {"file": "b.gif", "caption": "moves"},
        {"video": "a.mp4", "text": "keys of another tool"},
        ["no", "object"],
    ]
    text = "\n".join(map(json.dumps, lines))
    (tmp_path / "set.jsonl").write_text(f"{text}\n\nno json\n", encoding="utf-8-sig")
    entries = listed(tmp_path / "set.jsonl")
    assert told(entries) == {
        "clips/a.mp4": "one",
        "clips/a.mp4 #2": "the same clip in other words",
        "b.png": "has an empty caption",
        "b.gif": told(entries)["b.gif"],
        "line 5": "names no file: its keys are video, text",
        "line 6": "names no file: its keys are none",
        "line 8": told(entries)["line 8"],
    }
    assert told(entries)["b.gif"].startswith("is no file of a kind that is read")
    assert told(entries)["line 8"].startswith("is no JSON")
    assert entries[0].path == tmp_path / "clips/a.mp4"


def test_a_csv_file_lists_by_its_header(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text('caption,file\n"a cat, asleep",a.mp4\n"two\nlines",b.mp4\nshort\n')
    assert told(listed(tmp_path / "set.csv")) == {
        "a.mp4": "a cat, asleep",
        "b.mp4": "two\nlines",
        "line 5": "names no file: its keys are caption, file",
    }
    (tmp_path / "set.csv").write_text("file_name,text\na.mp4,words\n")
    assert (
        "its header is file_name,text, and has not both of file and caption"
        in refused(tmp_path / "set.csv").rule
    )


def test_what_is_no_data_set_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.mp4")
    assert "no folder, and no .jsonl or .csv" in refused(tmp_path / "a.mp4").rule
    assert "No such file" in refused(tmp_path / "absent.jsonl").rule
    assert "no folder" in refused(tmp_path / "absent").rule
    (tmp_path / "set.jsonl").write_bytes(b"\xff\xfe\xfa")
    assert "cannot be read" in refused(tmp_path / "set.jsonl").rule


def test_a_csv_field_that_never_ends_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text('file,caption\na.mp4,"no end\n')
    assert "cannot be read" in refused(tmp_path / "set.csv").rule
