"""The tiny card keeps to everything that authors' cards are held to."""

from __future__ import annotations

from fv_core.testing import CardConformance


class TestTiny(CardConformance):
    card_id = "wan21/micro"
