"""The runner of the cards' claims: every tap of fv has its counterpart, equal, and a fault in either shows."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

from fv_core import Engine, ModelCard, Request
from fv_core.parity.aligner import align
from fv_core.parity.reference import run_reference
from fv_core.parity.taps import record
from fv_core.request import Numerics, TaskType
from fv_ltx2.card import TINY_BASE, TINY_DISTILLED


def small(card: ModelCard, image: Any = None, **more: Any) -> Request:
    return Request(
        prompt="a red circle",
        model=card.model_id,
        task=TaskType.I2V if image else TaskType.T2V,
        seed=11,
        size=(64, 128),
        frames=9,
        numerics=Numerics.REFERENCE,
        inputs=(image,) if image else (),
        **more,
    )


def found(card: ModelCard, asked: Request, image: torch.Tensor | None = None) -> Any:
    """The alignment of a run of fv, on weights made from a seed, with the reference over the same modules."""
    engine = Engine([card], device="cpu", dtype="float32")
    mine = record(engine, asked)
    inputs = {} if image is None else {"request.image": image}
    theirs = run_reference(engine.instance(card.model_id), mine.facts.request, inputs)
    engine.close()
    return align(mine.taps, theirs)


@pytest.mark.parametrize(
    ("card", "more", "count"),
    [
        (TINY_DISTILLED, {}, 80),
        (TINY_DISTILLED, {"params": {"audio": False}}, 75),
        (TINY_BASE, {"steps": 2}, 44),
        (TINY_BASE, {"steps": 2, "guidance": 1.0}, 36),
    ],
)
def test_every_tap_is_equal(card: ModelCard, more: dict[str, Any], count: int) -> None:
    alignment = found(card, small(card, **more))
    assert alignment.first is None
    assert sum(figure.compared for figure in alignment.figures) == count


@pytest.mark.parametrize(("card", "steps"), [(TINY_DISTILLED, None), (TINY_BASE, 2)])
def test_every_tap_of_a_clip_that_begins_with_an_image_is_equal(
    card: ModelCard, steps: int | None, image_part: Any
) -> None:
    pixels = np.array(PIL.Image.open(io.BytesIO(image_part.data)).convert("RGB"))
    alignment = found(card, small(card, image_part, steps=steps), torch.from_numpy(pixels))
    assert alignment.first is None


def test_components_stay_as_they_were() -> None:
    engine = Engine([TINY_DISTILLED], device="cpu", dtype="float32")
    asked = small(TINY_DISTILLED)
    before = record(engine, asked)
    run_reference(engine.instance(TINY_DISTILLED.model_id), before.facts.request, {})
    after = record(engine, asked)
    engine.close()
    assert align(before.taps, after.taps).first is None
