"""Bytes of a device, or of a pool of caches, and who has reserved them. What is reserved is the sum over open tickets:
there is no counter that could drift from them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Final

from fv_core.errors import ResourceError
from fv_core.memory.claim import Claim, Tag, total
from fv_core.memory.size import shown

_REMEDIES: Final = {
    "FV401": "Use a smaller size or fewer frames, or allow more `memory`.",
    "FV404": "Use a smaller size, fewer frames or a shorter text, or make the engine with more `cache_bytes`.",
}
"""What to do about a claim that can never fit, by the code of its error, where a budget has no remedy of its own."""


class Ticket:
    """What one owner has reserved, until it is closed. Closing twice is the same as once."""

    def __init__(self, budget: Budget, owner: str, claims: Sequence[Claim], *, booked: bool) -> None:
        self.owner = owner
        self.claims = tuple(claims)
        self.booked = booked
        self._budget = budget

    def close(self) -> None:
        """Gives everything back."""
        self._budget._tickets.pop(self, None)


class Budget:
    """Hands out tickets for the bytes of one place.

    Args:
        place: which it is, for errors: "on cpu", "of stream caches".
        capacity: bytes that all tickets together may reserve.
        never: code of the error for what can never fit, FV401 or FV404.
        remedy: what that error advises; "": the usual of its code.
    """

    def __init__(self, place: str, capacity: int, *, never: str = "FV401", remedy: str = "") -> None:
        self.place = place
        self.capacity = capacity
        self.remedy = remedy or _REMEDIES[never]
        self._never = never
        self._tickets: dict[Ticket, None] = {}  # in the order they were made

    def reserved(self, tag: Tag | None = None) -> int:
        """Bytes that open tickets hold, of one tag where it is given."""
        return total(self._claims(), tag)

    def lacking(self, claims: Sequence[Claim]) -> int:
        """Bytes by which these claims exceed what is free now; 0 or less: they fit."""
        return total(chain(self._claims(), claims)) - self.capacity

    def owners(self, key: Hashable) -> tuple[str, ...]:
        """Who claims a thing, the first one first."""
        return tuple(
            ticket.owner for ticket in self._tickets if any(claim.key == key for claim in ticket.claims)
        )

    def reserve(self, owner: str, claims: Sequence[Claim], *, what: str) -> Ticket:
        """Reserves memory before it is used.

        Args:
            what: that which needs it, for errors.

        Raises:
            ResourceError: FV401 or FV404, more than there is for all; FV405, more than is free now.
        """
        self.check(claims, what=what)
        needed = total(claims)
        if (lacking := self.lacking(claims)) > 0:
            raise ResourceError(
                "FV405",
                name=what,
                rule=f"needs {shown(needed)} {self.place}, where {shown(self.capacity)} are available, and "
                f"{shown(lacking)} of that are reserved for {', '.join(self._others())} now",
                remedy="Close a job that is done, or let `Engine.run_many` start it when there is room.",
            )
        return self._enter(owner, claims, booked=False)

    def check(self, claims: Sequence[Claim], *, what: str) -> None:
        """Raises:
        ResourceError: FV401 or FV404, as `reserve`.
        """
        if (needed := total(claims)) > self.capacity:
            raise ResourceError(
                self._never,
                name=what,
                rule=f"needs {shown(needed)} {self.place}, where {shown(self.capacity)} are available",
                remedy=self.remedy,
            )

    def book(self, owner: str, claims: Sequence[Claim]) -> Ticket:
        """Enters memory that has been taken already, whether it fits or not; it is not what others wait for."""
        return self._enter(owner, claims, booked=True)

    def _enter(self, owner: str, claims: Sequence[Claim], *, booked: bool) -> Ticket:
        ticket = Ticket(self, owner, claims, booked=booked)
        self._tickets[ticket] = None
        return ticket

    def _claims(self) -> Iterator[Claim]:
        return chain.from_iterable(ticket.claims for ticket in self._tickets)

    def _others(self) -> tuple[str, ...]:
        """Who has to end before there is more room; where nobody has reserved, whose memory is in use."""
        using = [ticket for ticket in self._tickets if total(ticket.claims)]
        reserved = [ticket for ticket in using if not ticket.booked]
        return tuple(dict.fromkeys(ticket.owner for ticket in reserved or using))
