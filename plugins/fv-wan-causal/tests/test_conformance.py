"""The tiny card keeps to everything that authors' cards are held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from fv_core import Request
from fv_core.testing import CardConformance
from fv_wan_causal.card import TINY
from fv_wan_causal.probes import probes

_LONG, _, _IMAGE, _ = probes(TINY)


class TestTiny(CardConformance):
    card_id = "wan-causal/tiny"
    requests: ClassVar[Sequence[Request]] = (replace(_LONG, size=(16, 16), frames=21), _IMAGE)
