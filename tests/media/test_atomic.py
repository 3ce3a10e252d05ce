"""Files appear whole or not at all, whatever stops the writer."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from fv_core.errors import FvError, RequestError, ResourceError
from fv_core.media.atomic import check_folder, refusing, write_files


def test_write_files_writes_all_and_leaves_nothing_else(tmp_path: Path) -> None:
    files = {tmp_path / "a": b"one", tmp_path / "b": b"", tmp_path / "c": b"x" * 100_000}
    write_files(files, force=False)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == files


def test_write_files_obeys_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_files({tmp_path / "a": b"one"}, force=False)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_write_files_takes_no_name_of_a_set_when_one_is_taken(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(FileExistsError):
        write_files({tmp_path / name: b"new" for name in "abc"}, force=False)
    assert [file.name for file in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b").read_text() == "mine"


def test_write_files_never_follows_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        write_files({tmp_path / "a": b"new"}, force=False)
    assert not (tmp_path / "target").exists()


def test_write_files_replaces_when_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    write_files({tmp_path / "a": b"new", tmp_path / "b": b"new"}, force=True)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a": "new", "b": "new"}


def test_write_files_keeps_the_old_file_when_the_new_one_fails(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with (
        mock.patch("os.fsync", side_effect=OSError(errno.ENOSPC, "full")),
        pytest.raises(OSError, match="full"),
    ):
        write_files({tmp_path / "a": b"new"}, force=True)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a": "old"}


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_write_files_leaves_nothing_when_stopped_half_way(
    tmp_path: Path, call: str, stop: BaseException
) -> None:
    real = getattr(os, call.removeprefix("os."))
    half_way = mock.Mock(side_effect=[mock.DEFAULT, stop], wraps=real)
    with mock.patch(call, half_way), pytest.raises(type(stop)):
        write_files({tmp_path / name: b"new" for name in "abc"}, force=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_a_refused_resource(number: int) -> None:
    with pytest.raises(ResourceError) as caught, refusing(Path("out.mp4")):
        raise OSError(number, os.strerror(number))
    assert caught.value.code == "FV403"
    assert caught.value.entry.exit_code == 4
    assert os.strerror(number) in caught.value.message


@pytest.mark.parametrize(
    "number", [errno.EACCES, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.EEXIST]
)
def test_any_other_refusal_is_the_request_at_fault(number: int) -> None:
    with pytest.raises(RequestError) as caught, refusing(Path("out.mp4")):
        raise OSError(number, os.strerror(number))
    assert caught.value.code == "FV315"


def test_refusing_lets_pass_what_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError), refusing(tmp_path, let=FileExistsError):
        raise FileExistsError(errno.EEXIST, "there")


def test_check_folder_leaves_nothing(tmp_path: Path) -> None:
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["missing", "file", "/proc"])
def test_check_folder_refuses_where_no_file_can_be_made(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FvError) as caught, refusing(tmp_path):
        check_folder(tmp_path / folder)
    assert caught.value.code == "FV315"
