"""The tiny cards keep to what every card's loops and components must keep to."""

from __future__ import annotations

import io
from typing import ClassVar

import PIL.Image

from fv_core import Request
from fv_core.request import Modality, ModalPart, TaskType
from fv_core.testing import CardConformance


def still(
    model: str, size: tuple[int, int], steps: int | None = None, guidance: float | None = None
) -> Request:
    """One frame from a plain image, without sound."""
    with io.BytesIO() as file:
        PIL.Image.new("RGB", (64, 64), (200, 30, 20)).save(file, "PNG")
        image = ModalPart(modality=Modality.IMAGE, data=file.getvalue())
    return Request(
        model=model,
        prompt="a red square",
        task=TaskType.I2V,
        seed=5,
        size=size,
        frames=1,
        steps=steps,
        guidance=guidance,
        inputs=(image,),
        params={"audio": False},
    )


class TestTiny(CardConformance):
    card_id = "ltx2/tiny"
    requests: ClassVar = (
        still("ltx2/tiny", (64, 64)),
        Request(model="ltx2/tiny", prompt="waves break on the beach", seed=3, size=(64, 64), frames=9),
    )


class TestTinyBase(CardConformance):
    card_id = "ltx2/tiny-base"
    requests: ClassVar = (
        still("ltx2/tiny-base", (32, 32), steps=2, guidance=1.0),
        Request(
            model="ltx2/tiny-base",
            prompt="waves break",
            seed=3,
            size=(64, 32),
            frames=9,
            steps=2,
            guidance=3.0,
        ),
    )
