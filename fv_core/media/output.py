"""From a clip to its files: every check first, then the bytes, then all of them in place."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fv_core.media.atomic import check_folder, refusing, unusable, write_files
from fv_core.media.audio import encode_wav
from fv_core.media.enlarge import check_scale, enlarged
from fv_core.media.formats import check_artifacts, check_rate, check_size, check_sound, encode, format_of
from fv_core.media.metadata import metadata_text
from fv_core.media.naming import candidates, is_free, numbered, output_files
from fv_core.request import Size

if TYPE_CHECKING:
    from fv_core.media.clip import Clip


def check_output(
    path: str | Path,
    *,
    force: bool = False,
    frames: int = 1,
    size: Size | None = None,
    fps: float | None = None,
    yielded: Collection[str] = ("video",),
    sample_rate: int = 0,
) -> None:
    """Everything about an output that can be known before anything is computed. `Clip.save` checks the same.

    Args:
        frames, size, fps: of the clip to come, `size` after enlarging; what is None is not checked.
        yielded: names of the artifacts to come; sample_rate: of their sound, in Hz, 0 for silence.

    Raises:
        RequestError: the suffix names no format, the format cannot hold the size, the folder is missing or not
            writable, the file exists and `force` is not set (FV315); the format cannot keep the rate (FV307).
    """
    path = Path(path)
    form = format_of(path)
    check_artifacts(form, yielded)
    if sample_rate:
        check_sound(form, sample_rate)
    if size is not None and frames:
        check_size(form, size)
    if fps is not None and frames:
        check_rate(form, fps, frames)
    with refusing(path):
        check_folder(path.parent)
    files = output_files(path, frames)
    for file in files:
        check_free(file, force=force)
    following = numbered(path, frames + 1)
    if len(files) > 1 and os.path.lexists(following):
        rule = f"is left from a longer clip and would pass for the frame after number {frames}"
        raise unusable(following, rule, "Remove the older frames, or choose another name.")


def check_free(file: Path, *, force: bool) -> None:
    """Raises:
    RequestError: `file` exists and `force` is not set, is a folder, or is no name for a file (FV315).
    """
    with refusing(file):
        try:
            mode = file.lstat().st_mode  # of a dangling link too, which `exists` takes for nothing
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            raise unusable(file, "is a folder", "Choose another name.")
        if not force:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def save_clip(clip: Clip, path: Path, *, force: bool, scale: int) -> Path:
    """As `Clip.save` says."""
    _check(clip, path, force=force, scale=scale)
    files = output_files(path, len(clip.frames))
    contents = _contents(clip, path, scale)
    with refusing(path):
        write_files(dict(zip(files, contents, strict=True)), force=force)
    return files[0]


def save_automatic(clip: Clip, folder: Path, *, suffix: str, scale: int) -> Path:
    """As `Clip.save_automatic` says."""
    count = len(clip.frames)
    names = candidates(clip.request.prompt, clip.request.seed, suffix, folder)
    free = (path for path in names if is_free(path, count))
    first = next(free)
    # force: the name may be lost again meanwhile, which is met when it is written
    _check(clip, first, force=True, scale=scale)
    contents = _contents(clip, first, scale)
    for path in itertools.chain([first], free):
        files = output_files(path, count)
        with refusing(path, let=FileExistsError), suppress(FileExistsError):
            write_files(dict(zip(files, contents, strict=True)), force=False)
            break
    return files[0]


def _check(clip: Clip, path: Path, *, force: bool, scale: int) -> None:
    check_scale(scale)
    count, height, width, _ = clip.frames.shape
    check_output(
        path,
        force=force,
        frames=count,
        size=Size(width * scale, height * scale),
        fps=clip.fps,
        yielded=clip.artifacts,
        sample_rate=0 if clip.audio is None else clip.audio.rate,
    )


def _contents(clip: Clip, path: Path, scale: int) -> list[bytes]:
    form = format_of(path)
    if form.primary == "audio":
        assert clip.audio is not None, "checked"
        return [encode_wav(clip.audio)]
    if form.primary == "text":
        return [(clip.text or "").encode()]
    if "video" not in clip.artifacts:
        from fv_core.media.images import encode_npy  # loads Pillow

        assert clip.action is not None, "checked"
        return [encode_npy(clip.action)]
    return encode(form, enlarged(clip.frames, scale), clip.fps, metadata_text(clip.used), clip.audio)
