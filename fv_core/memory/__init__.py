"""Budgets: bytes of a device or a pool, reserved before they are used and given back exactly once. Free of torch."""

from __future__ import annotations

from fv_core.memory.budget import Budget, Ticket
from fv_core.memory.claim import Claim, Tag, total
from fv_core.memory.size import parse_bytes, shown

__all__ = ["Budget", "Claim", "Tag", "Ticket", "parse_bytes", "shown", "total"]
