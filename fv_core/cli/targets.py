"""Where the clips go: named, and checked before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fv_core.cli.asked import Asked
from fv_core.cli.options import Options
from fv_core.media import Clip, automatic_path, check_output, sidecar_path, write_sidecar
from fv_core.media.enlarge import check_scale
from fv_core.media.output import check_free
from fv_core.request import ResolvedRequest, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One clip's files. `path` None is an automatic name, taken when the clip is written."""

    path: Path | None
    scale: int
    force: bool
    sidecar: bool

    def likely(self, settled: ResolvedRequest) -> Path:
        """The path, or the automatic name that is free now."""
        return automatic_path(settled.prompt, settled.seed) if self.path is None else self.path

    def check(self, settled: ResolvedRequest) -> None:
        """Raises:
        RequestError: FV315 or FV307, the clip could not be written there.
        """
        path = self.likely(settled)
        size = Size(settled.size.width * self.scale, settled.size.height * self.scale)
        check_output(path, force=self.force, frames=settled.frames, size=size, fps=settled.fps)
        if self.sidecar:
            check_free(sidecar_path(path), force=self.force)

    def write_clip(self, clip: Clip) -> Path:
        """Raises:
        FvError: FV315, FV307 or FV403, as `Clip.save`.
        """
        if self.path is None:
            return clip.save_automatic(scale=self.scale)
        return clip.save(self.path, force=self.force, scale=self.scale)

    def write_sidecar(self, clip: Clip, written: Path) -> Path | None:
        """The sidecar of the clip in `written`; None where none is wanted.

        Raises:
            FvError: FV315 or FV403.
        """
        if not self.sidecar:
            return None
        return write_sidecar(self.path or written, clip, scale=self.scale, force=self.force)


def targets(asked: Asked, options: Options) -> list[Target]:
    """One target per request: `out.mp4`, or `out-1.mp4`, `out-2.mp4`, ... for several; all of them checked.

    Raises:
        RequestError: FV315 or FV307.
    """
    check_scale(asked.scale)
    found = [
        Target(path=path, scale=asked.scale, force=options.force, sidecar=options.sidecar)
        for path in _paths(options.output, len(asked.settled))
    ]
    for target, request in zip(found, asked.settled, strict=True):
        target.check(request)
    return found


def _paths(output: Path | None, clips: int) -> list[Path | None]:
    if output is None or clips == 1 or not output.name:  # what has no name is refused as any folder is
        return [output] * clips
    return [output.with_name(f"{output.stem}-{clip}{output.suffix}") for clip in range(1, clips + 1)]
