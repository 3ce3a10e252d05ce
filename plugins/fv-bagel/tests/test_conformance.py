"""The tiny card keeps to every promise that a card's loops and components make."""

from __future__ import annotations

from typing import ClassVar

from fv_core.testing import CardConformance


class TestTiny(CardConformance):
    card_id: ClassVar[str] = "bagel/tiny"
