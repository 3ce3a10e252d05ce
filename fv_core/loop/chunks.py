"""How a clip is cut into chunks: those given, those to be made, and lengths that the reference of a model has too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fv_core.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """Where chunks begin and end. All counts are latent frames.

    Args:
        chunk: frames of a chunk, >= 1.
        first_frame: whether the first frame is a chunk of its own.
        trained: the longest clip that the weights were made for; None: not stated.
    """

    chunk: int
    first_frame: bool
    trained: int | None

    def sizes(self, frames: int, given: int = 0) -> tuple[tuple[int, ...], int]:
        """Sizes of the chunks of a clip, of which the first `given` frames are there; and how many chunks those are.

        The last of the given ones, and the last of all, hold what is left.
        """
        before = self._cut(given, alone=self.first_frame)
        after = self._cut(frames - given, alone=self.first_frame and not given)
        return before + after, len(before)

    def is_whole(self, frames: int) -> bool:
        """Whether no chunk of so many frames is cut short."""
        return (frames - self.first_frame) % self.chunk == 0

    def check(self, frames: int, clip_frames: Callable[[int], int]) -> None:
        """Refuses lengths that the reference does not make.

        Args:
            clip_frames: how many frames a clip of so many latent frames has.

        Raises:
            RequestError: FV314, the last chunk would be cut short, or the clip is longer than the weights were made
                for.
        """
        if self.trained is not None and frames > self.trained:
            most = clip_frames(self.trained)
            raise _unlike("is longer than the weights were made for", clip_frames(frames), f"up to {most}")
        if not self.is_whole(frames):
            below = frames - (frames - self.first_frame) % self.chunk
            legal = [clip_frames(n) for n in (below, below + self.chunk) if n > 0]
            raise _unlike(
                "ends in a chunk that is cut short", clip_frames(frames), " or ".join(map(str, legal))
            )

    def _cut(self, frames: int, *, alone: bool) -> tuple[int, ...]:
        first = (1,) if alone and frames else ()
        whole, left = divmod(frames - len(first), self.chunk)
        return first + (self.chunk,) * whole + ((left,) if left else ())


def _unlike(rule: str, frames: int, legal: str) -> RequestError:
    return RequestError(
        "FV314",
        name="frames",
        value=frames,
        rule=f"{rule}, which the reference never does",
        legal=f"under reference numerics {legal}",
        remedy="Choose such a count, or --numerics exact.",
    )
