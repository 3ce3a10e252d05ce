"""Files tell what made them, and never what was asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from fv_core.errors import RequestError
from fv_core.media import Clip, read_metadata

TELLING = [".mp4", ".webm", ".gif", ".webp", ".png"]
FACTS = {
    "fv": 1,
    "model": "wan21/micro",
    "card_digest": "ab" * 32,
    "plugin": "fv-wan21 0.1.0",
    "seed": 7,
    "steps": 4,
    "guidance": 5.0,
    "sampler": "flow.unipc2.cfg/v1",
    "numerics": "exact",
    "dtype": "float32",
    "versions": {"fv-core": "0.1.0", "torch": "2.13.0"},
    "environment_hash": "cd" * 32,
}


@pytest.mark.parametrize("suffix", TELLING)
def test_metadata_are_read_back(circle: Clip, tmp_path: Path, suffix: str) -> None:
    assert read_metadata(circle.save(tmp_path / f"out{suffix}")) == FACTS


def test_every_png_frame_carries_the_metadata(circle: Clip, tmp_path: Path) -> None:
    circle.save(tmp_path / "out.png")
    assert [read_metadata(file) for file in tmp_path.iterdir()] == [FACTS] * 7


@pytest.mark.parametrize("suffix", [*TELLING, ".npy"])
def test_files_hold_no_word_of_the_prompt(circle: Clip, tmp_path: Path, suffix: str) -> None:
    circle.save(tmp_path / f"out{suffix}")
    for file in tmp_path.iterdir():
        data = file.read_bytes().lower()
        assert b"zebra" not in data
        assert b"quorum" not in data


def test_array_files_have_no_metadata(circle: Clip, tmp_path: Path) -> None:
    assert read_metadata(circle.save(tmp_path / "out.npy")) == {}


@pytest.mark.parametrize("comment", ["", "hello", "[1]", '{"other": 1}', "[" * 5000])
def test_comments_of_others_are_not_metadata(tmp_path: Path, comment: str) -> None:
    text = PngInfo()
    text.add_text("Comment", comment)
    Image.new("RGB", (4, 4)).save(tmp_path / "out.png", pnginfo=text)
    assert read_metadata(tmp_path / "out.png") == {}


@pytest.mark.parametrize(
    "name", ["absent.mp4", "absent.png", "absent.npy", "text.mp4", "text.gif", "out.txt"]
)
def test_files_that_are_not_media_are_refused(tmp_path: Path, name: str) -> None:
    if not name.startswith("absent"):
        (tmp_path / name).write_text("a text file")
    with pytest.raises(RequestError) as caught:
        read_metadata(tmp_path / name)
    assert caught.value.code == "FV315"


@pytest.mark.parametrize("suffix", TELLING)
def test_damaged_files_give_a_clean_answer(circle: Clip, tmp_path: Path, suffix: str) -> None:
    whole = circle.save(tmp_path / f"out{suffix}").read_bytes()
    rng = np.random.default_rng(0)
    damaged = tmp_path / f"damaged{suffix}"
    for cut in rng.integers(1, len(whole), 20):
        scratched = bytearray(whole[: int(cut)])
        scratched[int(rng.integers(0, cut))] ^= 0xFF
        damaged.write_bytes(scratched)
        try:
            facts = read_metadata(damaged)
        except RequestError:
            continue
        assert facts == {} or facts["fv"] == 1
