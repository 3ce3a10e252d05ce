"""A picture of a run, from its `metrics.jsonl`: loss, learning rate and gradient norm of each role by step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from PIL import Image, ImageDraw, ImageFont

from fv_core.training.runlog import read_metrics

FILE: Final = "curves.png"
"""The picture's name in a run's folder."""

_FIGURES: Final = {"loss": "loss", "lr": "learning rate", "grad_norm": "gradient norm"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT = 960, 220, 90, 34, 20
_INK, _GRID, _FAINT, _LINE = "#222222", "#e4e4e4", "#b8cfe6", "#1f5fa8"
_SMOOTH: Final = 0.95
"""What a running mean keeps of its last value at each step."""

Points: TypeAlias = Sequence[tuple[float, float]]


def draw_curves(run: Path) -> Path:
    """Draws the run so far into its folder. Figures that are not finite are left out."""
    panels = list(_panels(run))
    image = Image.new("RGB", (_WIDTH, _HEIGHT * len(panels) + 24), "white")
    for number, (title, points, bold) in enumerate(panels):
        _draw_panel(ImageDraw.Draw(image), number * _HEIGHT, title, points, bold)
    image.save(run / FILE)
    return run / FILE


def smoothed(points: Points) -> Points:
    """The running mean, weighted so that it does not begin at 0 (Adam's correction)."""
    mean, found = 0.0, []
    for number, (step, value) in enumerate(points, 1):
        mean = _SMOOTH * mean + (1 - _SMOOTH) * value
        found.append((step, mean / (1 - _SMOOTH**number)))
    return found


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """About `count` round numbers in [low, high], low < high: 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [apart * number for number in range(math.ceil(low / apart), math.floor(high / apart) + 1)]


def _panels(run: Path) -> Iterator[tuple[str, Points, Points]]:
    """Titles, with each step's figures and what is to be seen of them: of what is noisy, its running mean."""
    lines = read_metrics(run)
    roles = dict.fromkeys(str(line["role"]) for line in lines)
    for role in roles:
        for figure, title in _FIGURES.items():
            found = [
                (float(line["step"]), float(line[figure]))
                for line in lines
                if line["role"] == role and math.isfinite(float(line[figure]))
            ]
            bold = found if figure == "lr" else smoothed(found)
            yield (f"{role}: {title}" if len(roles) > 1 else title), found, bold


def _draw_panel(draw: ImageDraw.ImageDraw, top: int, title: str, points: Points, bold: Points) -> None:
    draw.text((_LEFT, top + 8), title, _INK, ImageFont.load_default(16))
    if not points:
        draw.text((_LEFT, top + _TOP), "no finite figure", _INK, ImageFont.load_default(13))
        return
    (left, right), (low, high) = (_range([point[axis] for point in points]) for axis in (0, 1))
    box = (_LEFT, top + _TOP, _WIDTH - _RIGHT, top + _HEIGHT - 20)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = (point[0] - left) / (right - left)
        up = (point[1] - low) / (high - low)
        return box[0] + across * (box[2] - box[0]), box[3] - up * (box[3] - box[1])

    font = ImageFont.load_default(13)
    for value in ticks(low, high):
        _, y = place((left, value))
        draw.line((box[0], y, box[2], y), _GRID)
        draw.text((box[0] - 8, y), f"{value:.4g}", _INK, font, anchor="rm")
    for step in ticks(left, right, 8):
        x, _ = place((step, low))
        draw.line((x, box[3], x, box[3] + 4), _INK)
        draw.text((x, box[3] + 6), f"{step:.6g}", _INK, font, anchor="mt")
    draw.rectangle(box, outline=_INK)
    for line, colour, width in ((points, _FAINT, 1), (bold, _LINE, 2)):
        draw.line([place(point) for point in line], colour, width)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """What an axis shows: all values, and some room where they are all one."""
    low, high = min(values), max(values)
    room = (high - low) * 0.04 or abs(high) * 0.5 or 1.0
    return low - room, high + room
