"""Legal sizes and frame counts as rules that can say their legal set."""

from __future__ import annotations

from dataclasses import dataclass

from fv_core.request import Size

MIN_FPS, MAX_FPS = 0.01, 240
"""Frames per second that a request may ask for, inclusive: below, containers cannot tell the time of a frame."""

MAX_FRAMES = 65536
"""The most frames that a card may allow: over an hour at 16 per second, and few enough to list the legal counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRule:
    """Both sides are multiples of `multiple` within [smallest, largest], in pixels."""

    multiple: int = 16
    smallest: int = 16
    largest: int = 2048

    def allows(self, size: Size) -> bool:
        return all(
            side % self.multiple == 0 and self.smallest <= side <= self.largest for side in _sides(size)
        )

    def legal(self) -> str:
        return f"width and height multiples of {self.multiple}, {self.smallest} to {self.largest}"

    def nearest(self, size: Size) -> Size:
        """The closest legal size, for remedies only: fv never rounds a request."""
        least, most = -(-self.smallest // self.multiple), self.largest // self.multiple
        width, height = (_nearest(side, self.multiple, least, most) for side in _sides(size))
        return Size(width, height)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRule:
    """`multiple * k + 1` frames, from 1 to `largest`, which is `MAX_FRAMES` at most."""

    multiple: int = 4
    largest: int = 4093

    def allows(self, frames: int) -> bool:
        return 1 <= frames <= self.largest and (frames - 1) % self.multiple == 0

    def legal(self) -> str:
        return (
            f"{self.multiple}k+1 (1, {1 + self.multiple}, {1 + 2 * self.multiple}, ...) up to {self.largest}"
        )

    def nearest(self, frames: int) -> int:
        """The closest legal count, for remedies only."""
        return _nearest(frames - 1, self.multiple, 0, (self.largest - 1) // self.multiple) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamRule:
    """A parameter that requests may set beside the common ones: a number in a range, one of `choices`, or yes or no.

    `default` None is the recipe's fact of the same name; a default of True or False makes it yes or no. `whole` takes
    whole numbers alone.
    """

    doc: str
    default: float | int | str | bool | None = None
    lowest: float = 0.0
    highest: float = 1.0
    choices: tuple[str, ...] = ()
    whole: bool = False

    @property
    def yes_or_no(self) -> bool:
        return isinstance(self.default, bool)

    def allows(self, value: float | int | str | bool) -> bool:
        if self.choices:
            return value in self.choices
        if self.yes_or_no:
            return isinstance(value, bool)
        if self.whole and not isinstance(value, int):
            return False
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and self.lowest <= value <= self.highest  # type: ignore[operator]

    def legal(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        if self.yes_or_no:
            return "true, false"
        numbers = "whole numbers from " if self.whole else ""
        return numbers + f"{self.lowest:g} to {self.highest:g}"


def _nearest(value: int, multiple: int, least: int, most: int) -> int:
    """The multiple closest to `value`, from `least` to `most` times `multiple`; numbers of any length."""
    return min(max((2 * value + multiple) // (2 * multiple), least), most) * multiple


def _sides(size: Size) -> tuple[int, int]:
    return size.width, size.height
