"""The picture of a run shows what the run told: each line where its figures are, and its axes in round numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageColor

import fv_core.training.curves as curves
from fv_core.training.curves import FILE, draw_curves, smoothed, ticks
from fv_core.training.trainer import Trainer

LINE = ImageColor.getrgb(curves._LINE)


def write(run: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def heights(image: Image.Image, panel: int) -> list[float]:
    """The mean row of the bold line in each column that it is in, from the left."""
    found = []
    for x in range(image.width):
        rows = range(panel * curves._HEIGHT, (panel + 1) * curves._HEIGHT)
        if hits := [y for y in rows if image.getpixel((x, y)) == LINE]:
            found.append(sum(hits) / len(hits))
    return found


def test_a_run_leaves_the_picture_of_its_steps(make: Callable[..., Trainer]) -> None:
    trainer = make(train={"steps": 4, "warmup": 4})
    trainer.fit()
    with Image.open(trainer.run / FILE) as image:
        assert image.format == "PNG" and image.height == 3 * curves._HEIGHT + 24
        loss, rate = heights(image.convert("RGB"), 0), heights(image.convert("RGB"), 1)
    assert len(loss) > 100 and rate[0] > rate[len(rate) // 2] > rate[-1]


def test_lines_rise_and_fall_with_their_figures(tmp_path: Path) -> None:
    lines = [
        {"step": step, "role": "student", "loss": 100 - step, "lr": step, "grad_norm": 1.0}
        for step in range(1, 101)
    ]
    with Image.open(draw_curves(write(tmp_path, lines))) as image:
        loss, rate, norm = (heights(image.convert("RGB"), panel) for panel in range(3))
    assert loss[0] < loss[-1] and rate[0] > rate[-1]
    assert max(norm) - min(norm) < 2  # flat, but for the ends of a line two pixels wide


def test_what_is_not_finite_is_left_out_and_each_role_is_shown(tmp_path: Path) -> None:
    lines = [
        {"step": 1, "role": role, "loss": float("nan"), "lr": 1.0, "grad_norm": 2.0}
        for role in ("student", "critic")
    ]
    with Image.open(draw_curves(write(tmp_path, lines))) as image:
        assert image.height == 6 * curves._HEIGHT + 24
        assert heights(image.convert("RGB"), 0) == []


def test_a_running_mean_of_one_value_is_that_value() -> None:
    assert [value for _, value in smoothed([(1, 3.0), (2, 3.0)])] == pytest.approx([3.0, 3.0])


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_lie_on_the_axis_and_are_few(low: float, span: float) -> None:
    high = low + span
    if high - low < span / 2:  # too small a span for these floats
        return
    found = ticks(low, high)
    room = span * 1e-6 + abs(low) * 1e-12
    assert 1 <= len(found) <= 6 and all(low - room <= value <= high + room for value in found)
