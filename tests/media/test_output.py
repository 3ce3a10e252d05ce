"""Outputs are refused before anything is computed, never overwritten, never left half written, always the same."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fv_core.errors import RequestError
from fv_core.media import Clip, check_output, write_sidecar
from fv_core.media.atomic import write_files
from fv_core.request import Size

SUFFIXES = [".mp4", ".webm", ".gif", ".webp", ".png", ".npy"]
every_suffix = pytest.mark.parametrize("suffix", SUFFIXES)

# Saves the clip that lies in an array and its sidecar in a process of its own, whose files may have `limit` bytes.
SAVE = """
import json, os, resource, sys
from pathlib import Path
import numpy as np
from fv_core.errors import FvError
from fv_core.media import Clip, read_sidecar
array, target, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
facts = read_sidecar(f"{array}.json")
clip = Clip(frames=np.load(array), fps=facts.request.fps, request=facts.request, used=facts.used)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    clip.save(target)
    error = None
except FvError as raised:
    error = {"code": raised.code, "exit": raised.entry.exit_code, "message": raised.message}
print(json.dumps({"error": error, "left": sorted(os.listdir(target.parent))}))
"""
SMALL_DISK = 'mount -t tmpfs -o size=16k small-disk "$0" && exec "$@"'


def saved_elsewhere(
    clip: Clip, folder: Path, target: Path, limit: int = 0, within: tuple[str, ...] = ()
) -> Any:
    array = folder / "clip.npy"
    np.save(array, clip.frames)
    write_sidecar(array, clip)
    command = [*within, sys.executable, "-c", SAVE, str(array), str(target), str(limit)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    return json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)


def small_disk(folder: Path) -> tuple[str, ...]:
    """A command that runs another one where `folder` is a real disk of 16 KiB; empty where that is not allowed."""
    within = ("unshare", "--mount", "--map-root-user", "sh", "-c", SMALL_DISK, str(folder))
    try:
        allowed = subprocess.run([*within, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    return within if allowed else ()


def hashes(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@every_suffix
def test_equal_clips_give_equal_bytes(noise: Clip, tmp_path: Path, suffix: str) -> None:
    for folder in ("one", "two", "three", "source"):
        (tmp_path / folder).mkdir()
    noise.save(tmp_path / "one" / f"out{suffix}")
    noise.save(tmp_path / "two" / f"out{suffix}")
    told = saved_elsewhere(noise, tmp_path / "source", tmp_path / "three" / f"out{suffix}")
    assert told["error"] is None
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two") == hashes(tmp_path / "three") != {}


@every_suffix
def test_a_full_disk_leaves_nothing(noise: Clip, tmp_path: Path, suffix: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    within = small_disk(disk)
    # Where nobody may mount, the kernel stops the writer at the same size with another errno.
    told = saved_elsewhere(
        noise, tmp_path, disk / f"out{suffix}", limit=0 if within else 16_384, within=within
    )
    assert (told["error"]["code"], told["error"]["exit"]) == ("FV403", 4)
    assert ("No space left on device" if within else "File too large") in told["error"]["message"]
    assert told["left"] == []


@every_suffix
def test_a_file_limit_leaves_nothing(noise: Clip, tmp_path: Path, suffix: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    told = saved_elsewhere(noise, tmp_path, disk / f"out{suffix}", limit=16_384)
    assert (told["error"]["code"], told["error"]["exit"]) == ("FV403", 4)
    assert told["left"] == []


@every_suffix
def test_save_refuses_what_exists(circle: Clip, tmp_path: Path, suffix: str) -> None:
    first = circle.save(tmp_path / f"out{suffix}")
    before = hashes(tmp_path)
    with pytest.raises(RequestError, match="exists already") as caught:
        circle.save(tmp_path / f"out{suffix}", scale=2)
    assert caught.value.code == "FV315"
    assert hashes(tmp_path) == before
    assert circle.save(tmp_path / f"out{suffix}", scale=2, force=True) == first
    assert hashes(tmp_path).keys() == before.keys()
    assert hashes(tmp_path) != before


def test_save_refuses_before_it_encodes(circle: Clip, tmp_path: Path) -> None:
    (tmp_path / "out.mp4").touch()
    with mock.patch("fv_core.media.output.encode", side_effect=AssertionError), pytest.raises(RequestError):
        circle.save(tmp_path / "out.mp4")


def test_save_that_loses_a_race_leaves_the_winner(circle: Clip, tmp_path: Path) -> None:
    with (
        mock.patch("fv_core.media.output.write_files", late(tmp_path / "out.mp4")),
        pytest.raises(RequestError),
    ):
        circle.save(tmp_path / "out.mp4")
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"out.mp4": "theirs"}


def late(taken: Path) -> Callable[..., None]:
    """`write_files`, except that somebody else makes `taken` just before the first call."""

    def write(files: Mapping[Path, bytes], *, force: bool) -> None:
        if not taken.exists():
            taken.write_text("theirs")
        write_files(files, force=force)

    return write


def test_png_refuses_a_longer_older_set(circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path) -> None:
    circle.save(tmp_path / "out.png")
    with pytest.raises(RequestError, match=r"out-0004\.png': is left from a longer clip"):
        clip_of(circle.frames[:3]).save(tmp_path / "out.png", force=True)
    assert len(list(tmp_path.iterdir())) == 7


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("out.avi", "names no format"),
        ("missing/out.mp4", "No such file or directory"),
        ("file.mp4/out.mp4", "Not a directory"),
        ("file.mp4", "exists already"),
        ("folder.mp4", "is a folder"),
        ("link.mp4", "exists already"),
        (f"{'x' * 300}.mp4", "File name too long"),
        ("nul\0.mp4", "is no file name"),
        ("/proc/out.mp4", "cannot be written"),
    ],
)
def test_check_output_refuses_what_cannot_be_written(tmp_path: Path, name: str, rule: str) -> None:
    (tmp_path / "file.mp4").touch()
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "link.mp4").symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RequestError, match=rule) as caught:
        check_output(tmp_path / name)
    assert caught.value.code == "FV315"
    assert caught.value.entry.exit_code == 2
    assert sorted(tmp_path.iterdir()) == before


def test_check_output_with_force_refuses_only_folders(tmp_path: Path) -> None:
    (tmp_path / "file.mp4").touch()
    (tmp_path / "folder.mp4").mkdir()
    check_output(tmp_path / "file.mp4", force=True)
    with pytest.raises(RequestError, match="is a folder"):
        check_output(tmp_path / "folder.mp4", force=True)


def test_check_output_knows_the_limits_of_formats(tmp_path: Path) -> None:
    check_output(tmp_path / "out.mp4", frames=17, size=Size(64, 64), fps=16.0)
    with pytest.raises(RequestError, match="odd side"):
        check_output(tmp_path / "out.mp4", size=Size(63, 64))
    with pytest.raises(RequestError, match="cannot be kept by"):
        check_output(tmp_path / "out.gif", fps=60.0)


@pytest.mark.parametrize(
    ("suffix", "side"), [(".mp4", 16_384), (".webm", 16_384), (".webp", 16_383), (".gif", 65_535)]
)
def test_save_holds_frames_as_long_as_the_format_says(
    clip_of: Callable[..., Clip], tmp_path: Path, suffix: str, side: int
) -> None:
    for shape in ((1, 16, side, 3), (1, side, 16, 3)):
        saved = clip_of(np.full(shape, 90, dtype=np.uint8)).save(tmp_path / f"out{suffix}", force=True)
        assert saved.stat().st_size > 0


def test_one_png_may_lie_beside_numbered_ones(
    circle: Clip, clip_of: Callable[..., Clip], tmp_path: Path
) -> None:
    circle.save(tmp_path / "out.png")
    assert clip_of(circle.frames[:1]).save(tmp_path / "out.png") == tmp_path / "out.png"
    assert len(list(tmp_path.iterdir())) == 8


def test_check_output_looks_at_every_numbered_frame(tmp_path: Path) -> None:
    (tmp_path / "out-0003.png").touch()
    check_output(tmp_path / "out.png", frames=1)  # another file's neighbour, whatever its number
    with pytest.raises(RequestError, match=r"out-0003\.png': exists already"):
        check_output(tmp_path / "out.png", frames=3)
    with pytest.raises(RequestError, match="longer clip"):
        check_output(tmp_path / "out.png", frames=2)


def test_save_automatic_numbers_and_never_replaces(circle: Clip, tmp_path: Path) -> None:
    saved = [circle.save_automatic(tmp_path, suffix=".gif") for _ in range(3)]
    assert [path.name for path in saved] == [f"zebra-quorum-naive-7{n}.gif" for n in ("", "-2", "-3")]
    assert len(list(tmp_path.iterdir())) == 3


def test_save_automatic_goes_on_when_its_name_is_taken_late(circle: Clip, tmp_path: Path) -> None:
    taken = tmp_path / "zebra-quorum-naive-7-0005.png"
    with mock.patch("fv_core.media.output.write_files", late(taken)):
        saved = circle.save_automatic(tmp_path, suffix=".png")
    assert saved == tmp_path / "zebra-quorum-naive-7-2-0001.png"
    assert taken.read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 8


def test_save_automatic_in_threads_gives_each_its_own_file(
    clip_of: Callable[..., Clip], tmp_path: Path
) -> None:
    clips = [clip_of(np.full((2, 16, 16, 3), level, dtype=np.uint8)) for level in range(8)]
    start = threading.Barrier(len(clips))

    def save(clip: Clip) -> None:
        start.wait()
        clip.save_automatic(tmp_path, suffix=".npy")

    threads = [threading.Thread(target=save, args=(clip,)) for clip in clips]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(np.load(file)[0, 0, 0, 0] for file in tmp_path.iterdir()) == list(range(8))


@pytest.mark.parametrize(("folder", "suffix"), [("missing", ".mp4"), (".", ".avi")])
def test_save_automatic_refuses_as_save_does(circle: Clip, tmp_path: Path, folder: str, suffix: str) -> None:
    with pytest.raises(RequestError) as caught:
        circle.save_automatic(tmp_path / folder, suffix=suffix)
    assert caught.value.code == "FV315"
    assert list(tmp_path.iterdir()) == []
