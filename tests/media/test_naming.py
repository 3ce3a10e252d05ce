"""Automatic names: words of the prompt, the seed, a number when taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from fv_core.media import automatic_path, sidecar_path
from fv_core.media.naming import output_files


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("a red circle moving right", "a-red-circle-moving-right-7.mp4"),
        ("One two three four five six seven eight", "one-two-three-four-five-six-7.mp4"),
        ("  Crème brûlée, naïve!  ", "creme-brulee-naive-7.mp4"),
        ("../../etc/passwd", "etc-passwd-7.mp4"),
        ("extraordinarily incomprehensible characterisations", "extraordinarily-incomprehensible-7.mp4"),
        ("x" * 200, f"{'x' * 40}-7.mp4"),
        ("红色的圆", "clip-7.mp4"),
        ("🙂", "clip-7.mp4"),
        ("\n\0", "clip-7.mp4"),
        ("", "clip-7.mp4"),
    ],
)
def test_automatic_path_is_words_and_seed(prompt: str, name: str, tmp_path: Path) -> None:
    assert automatic_path(prompt, 7, folder=tmp_path) == tmp_path / name


def test_automatic_path_counts_past_what_is_taken(tmp_path: Path) -> None:
    names = [automatic_path("a cat", 2**64 - 1, ".gif", tmp_path)]
    for _ in range(3):
        names[-1].touch()
        names.append(automatic_path("a cat", 2**64 - 1, ".gif", tmp_path))
    stem = f"a-cat-{2**64 - 1}"
    assert [name.name for name in names] == [f"{stem}.gif", f"{stem}-2.gif", f"{stem}-3.gif", f"{stem}-4.gif"]


@pytest.mark.parametrize(
    "taken", ["a-cat-7.png", "a-cat-7-0001.png", "a-cat-7.png.json", "a-cat-7-0001.png.json"]
)
def test_automatic_path_avoids_numbered_frames_and_sidecars(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).touch()
    assert automatic_path("a cat", 7, ".png", tmp_path).name == "a-cat-7-2.png"


def test_automatic_path_avoids_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "a-cat-7.mp4").symlink_to(tmp_path / "nowhere")
    assert automatic_path("a cat", 7, folder=tmp_path).name == "a-cat-7-2.mp4"


def test_output_files_number_only_png() -> None:
    assert output_files(Path("out.mp4"), 3) == [Path("out.mp4")]
    assert output_files(Path("out.png"), 1) == [Path("out.png")]
    assert output_files(Path("out.png"), 2) == [Path("out-0001.png"), Path("out-0002.png")]
    assert output_files(Path("out.png"), 10_001)[-1] == Path("out-10001.png")


def test_sidecar_path_keeps_the_suffix_of_the_clip() -> None:
    assert sidecar_path("folder/circle.mp4") == Path("folder/circle.mp4.json")
