"""Where the clips go: named, and checked before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fv_core.cli.asked import Asked
from fv_core.cli.options import Options
from fv_core.media import Clip, automatic_path, check_output, sidecar_path, write_sidecar
from fv_core.media.enlarge import check_scale
from fv_core.media.output import check_free
from fv_core.request import ResolvedRequest, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One clip's files. A relative `path` is of `folder`, wherever the process has gone meanwhile.

    `path` None is an automatic name, taken when the clip is written; a text alone needs no file. `yielded` names the
    artifacts to come, `sample_rate` is that of their sound, 0 for silence; `image` says that one frame is all that
    the task makes.
    """

    path: Path | None
    folder: Path
    yielded: tuple[str, ...]
    sample_rate: int
    image: bool
    scale: int
    force: bool
    sidecar: bool

    def likely(self, settled: ResolvedRequest) -> Path:
        """The path, or the automatic name that is free now."""
        if self.path is not None:
            return self.path
        return automatic_path(settled.prompt, settled.seed, self.suffix)

    @property
    def is_told(self) -> bool:
        """Whether all that comes is a text, for which nobody asked a file."""
        return self.path is None and self.yielded == ("text",)

    @property
    def suffix(self) -> str:
        """Of the automatic name."""
        if "video" not in self.yielded:
            return ".npy" if "action" in self.yielded else ".txt"
        return ".png" if self.image else ".mp4"

    def shown(self, written: Path) -> Path:
        """A file that was written, as its name was given."""
        given = self.path is not None and self.path.is_absolute()
        return (
            written if given or not written.is_relative_to(self.folder) else written.relative_to(self.folder)
        )

    def check(self, settled: ResolvedRequest) -> None:
        """Raises:
        RequestError: FV315 or FV307, the clip could not be written there.
        """
        if self.is_told:
            return
        path = self.likely(settled)
        size = Size(settled.size.width * self.scale, settled.size.height * self.scale)
        check_output(
            path,
            force=self.force,
            frames=settled.frames,
            size=size,
            fps=settled.fps,
            yielded=self.yielded,
            sample_rate=self.sample_rate,
        )
        if self.sidecar:
            check_free(sidecar_path(path), force=self.force)

    def write_clip(self, clip: Clip) -> Path:
        """Raises:
        FvError: FV315, FV307 or FV403, as `Clip.save`.
        """
        if self.path is None:
            return clip.save_automatic(self.folder, suffix=self.suffix, scale=self.scale)
        return clip.save(self.folder / self.path, force=self.force, scale=self.scale)

    def write_actions(self, clip: Clip, written: Path) -> Path | None:
        """The file of the actions beside a clip that shows them, `circle.mp4.action.npy`; None where there are none.

        Raises:
            FvError: FV315 or FV403.
        """
        if clip.action is None or "video" not in self.yielded:
            return None
        actions = replace(clip, frames=clip.frames[:0], audio=None, text=None)
        return actions.save(written.with_name(f"{written.name}.action.npy"), force=self.force)

    def write_sidecar(self, clip: Clip, written: Path) -> Path | None:
        """The sidecar of the clip in `written`; None where none is wanted.

        Raises:
            FvError: FV315 or FV403.
        """
        if not self.sidecar:
            return None
        named = written if self.path is None else self.folder / self.path
        return write_sidecar(named, clip, scale=self.scale, force=self.force)


def targets(asked: Asked, options: Options) -> list[Target]:
    """One target per request: `out.mp4`, or `out-1.mp4`, `out-2.mp4`, ... for several; all of them checked.

    Raises:
        RequestError: FV315 or FV307.
    """
    check_scale(asked.scale)
    paths = _paths(options.output, len(asked.settled))
    found = [
        _target(asked, request, path, options) for path, request in zip(paths, asked.settled, strict=True)
    ]
    for target, request in zip(found, asked.settled, strict=True):
        target.check(request)
    return found


def _target(asked: Asked, request: ResolvedRequest, path: Path | None, options: Options) -> Target:
    program = asked.card.programs[request.task]
    yielded = tuple(program.yields(request))
    return Target(
        path=path,
        folder=options.folder,
        yielded=yielded,
        sample_rate=program.sample_rate if "audio" in yielded else 0,
        image=program.fixed.get("frames") == 1,
        scale=asked.scale,
        force=options.force,
        sidecar=options.sidecar,
    )


def _paths(output: Path | None, clips: int) -> list[Path | None]:
    if output is None or clips == 1 or not output.name:  # what has no name is refused as any folder is
        return [output] * clips
    return [output.with_name(f"{output.stem}-{clip}{output.suffix}") for clip in range(1, clips + 1)]
