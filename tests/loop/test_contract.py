"""References in a state: found wherever they are nested, because what is not found is given back too early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fv_core.cache import CacheRef, ValueRef
from fv_core.loop import held_refs

VALUE = ValueRef(hash="a")
OTHER = ValueRef(hash="b")
CACHE = CacheRef(pool="stream", id="c", version=1, owner="r1")


@dataclass(frozen=True)
class Nested:
    value: Any
    more: Any = None


def test_references_are_found_at_any_depth() -> None:
    state = Nested(value=(VALUE, [{"x": Nested(value=CACHE)}]), more={"y": (OTHER,)})
    assert held_refs(state) == {VALUE, OTHER, CACHE}
    assert held_refs(VALUE) == {VALUE}
    assert held_refs((state, Nested(value=VALUE))) == {VALUE, OTHER, CACHE}


def test_everything_else_holds_nothing() -> None:
    assert held_refs(Nested(value=torch.zeros(2), more=("text", 1, None, Nested))) == frozenset()
    assert held_refs(()) == held_refs({}) == held_refs(None) == frozenset()
