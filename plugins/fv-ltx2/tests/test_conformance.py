"""The tiny cards keep to what every card's loops and components must keep to."""

from __future__ import annotations

from fv_core.testing import CardConformance


class TestTiny(CardConformance):
    card_id = "ltx2/tiny"


class TestTinyBase(CardConformance):
    card_id = "ltx2/tiny-base"
