"""Budgets under any order of reserving and giving back: never over, never negative, nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from fv_core.errors import ResourceError
from fv_core.memory import Budget, Claim, Tag, Ticket, total

KEYS = st.sampled_from([None, "text", "vae"])
CLAIMS = st.lists(
    st.builds(Claim, tag=st.sampled_from(Tag), bytes=st.integers(0, 60), key=KEYS), max_size=4
).map(tuple)


def weights(size: int, key: str | None = None) -> Claim:
    return Claim(tag=Tag.WEIGHTS, bytes=size, key=key)


def working(size: int) -> Claim:
    return Claim(tag=Tag.ACTIVATIONS, bytes=size)


class Reservations(RuleBasedStateMachine):
    """The model is a list of what is open, and sums over it written out in another way."""

    tickets: Bundle[Ticket] = Bundle("tickets")
    closed: Bundle[Ticket] = Bundle("closed")

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget("on cpu", 100)
        self.open: list[Ticket] = []
        self.allowed = 100  # what was booked or taken from the capacity may be over it

    def sum_of(self, claims: list[Claim]) -> int:
        things = {(claim.tag, claim.key) for claim in claims if claim.key is not None}
        shared = [max(c.bytes for c in claims if (c.tag, c.key) == thing) for thing in things]
        return sum(shared) + sum(claim.bytes for claim in claims if claim.key is None)

    def held(self) -> list[Claim]:
        return [claim for ticket in self.open for claim in ticket.claims]

    @rule(target=tickets, claims=CLAIMS)
    def reserve(self, claims: tuple[Claim, ...]) -> Ticket | MultipleResults[Ticket]:
        needed, together = self.sum_of(list(claims)), self.sum_of([*self.held(), *claims])
        if together > self.budget.capacity:
            with pytest.raises(ResourceError) as caught:
                self.budget.reserve("r1", claims, what="a request")
            assert caught.value.code == ("FV401" if needed > self.budget.capacity else "FV405")
            return multiple()
        ticket = self.budget.reserve("r1", claims, what="a request")
        self.open.append(ticket)
        return ticket

    @rule(target=tickets, claims=CLAIMS)
    def book(self, claims: tuple[Claim, ...]) -> Ticket:
        ticket = self.budget.book("model", claims)
        self.open.append(ticket)
        self.allowed = max(self.allowed, self.sum_of(self.held()))
        return ticket

    @rule(target=closed, ticket=consumes(tickets))
    def close(self, ticket: Ticket) -> Ticket:
        ticket.close()
        self.open.remove(ticket)
        return ticket

    @rule(ticket=closed)
    def close_again(self, ticket: Ticket) -> None:
        ticket.close()

    @rule(capacity=st.integers(0, 200))
    def resize(self, capacity: int) -> None:
        self.budget.capacity = capacity
        self.allowed = max(self.allowed, capacity)

    @invariant()
    def is_the_sum_of_what_is_open(self) -> None:
        assert self.budget.reserved() == self.sum_of(self.held())
        assert self.budget.reserved() == sum(self.budget.reserved(tag) for tag in Tag)
        assert 0 <= self.budget.reserved() <= self.allowed
        for key in ("text", "vae"):
            named = [one for one in self.open if any(claim.key == key for claim in one.claims)]
            assert len(self.budget.owners(key)) == len(named)

    def teardown(self) -> None:
        for ticket in self.open:
            ticket.close()
        assert self.budget.reserved() == 0


TestReservations = Reservations.TestCase
TestReservations.settings = settings(max_examples=60, stateful_step_count=30)


def test_what_is_shared_is_counted_once_at_its_largest() -> None:
    budget = Budget("on cpu", 100)
    first = budget.reserve("r1", [weights(70, "text"), working(10)], what="first")
    second = budget.reserve("r2", [weights(60, "text"), working(20)], what="second")
    assert budget.reserved() == 100 and budget.owners("text") == ("r1", "r2")
    first.close()
    assert (budget.reserved(), budget.reserved(Tag.WEIGHTS)) == (80, 60)
    second.close()
    assert budget.reserved() == 0


def test_one_key_of_two_purposes_is_two_things() -> None:
    assert total([weights(3, "a"), Claim(tag=Tag.ACTIVATIONS, bytes=4, key="a")]) == 7


def test_what_can_never_fit_and_what_does_not_fit_now_are_told_apart_with_the_figures() -> None:
    budget = Budget("on cuda:0", 3000)
    budget.reserve("r1", [working(2000)], what="first")
    with pytest.raises(ResourceError) as never:
        budget.reserve("r2", [working(3001)], what="wan21/micro at 64x64, 17 frames")
    assert never.value.code == "FV401"
    assert (
        "needs 3001 bytes (2.9 KiB) on cuda:0, where 3000 bytes (2.9 KiB) are available"
        in never.value.message
    )
    with pytest.raises(ResourceError) as now:
        budget.reserve("r2", [working(1001)], what="wan21/micro at 64x64, 17 frames")
    assert now.value.code == "FV405"
    assert "needs 1001 bytes" in now.value.message and "r1" in now.value.message
    assert budget.reserved() == 2000


def test_who_is_waited_for_has_reserved_and_not_what_leaves_by_itself() -> None:
    budget = Budget("cpu", 100)
    budget.book("what is kept", [])
    budget.book("an idle model", [weights(30, "text")])
    budget.reserve("r1", [working(50)], what="first")
    budget.reserve("r2", [], what="second")
    with pytest.raises(ResourceError, match="reserved for r1 now"):
        budget.reserve("r3", [working(30)], what="third")
    alone = Budget("cpu", 100)
    alone.book("a model", [weights(80, "text")])
    with pytest.raises(ResourceError, match="reserved for a model now"):
        alone.reserve("r1", [working(30)], what="first")
