"""What is kept of a price is what working it out anew gives, to the bit, and so every turn goes to the same job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fv_core.request import Numerics, Priority, Size
from fv_core.runtime.scheduler.book import Shape
from fv_core.runtime.scheduler.joining import Joining
from fv_core.runtime.scheduler.pricing import FOLLOWS_S, NodeSteps, Pricing, Quote, StepKey
from fv_core.runtime.scheduler.remaining import LeastRemaining, Patience


def key(node: str, work: float) -> StepKey:
    shape = Shape(
        node=node, size=Size(64, 64), frames=17, guided=True, numerics=Numerics.EXACT, dtype="float32", offload="none",
        adapters="",
    )  # fmt: skip
    return StepKey(card="card", machine="machine", shape=shape, work=work)


NODES = tuple((key("text", 1e6), key(f"denoise {size}", size * 1e9), key("decode", 1e8)) for size in (1, 4))
"""Nodes of a small and of a large clip."""


@dataclass(slots=True, kw_only=True, eq=False)
class Priced:
    """A candidate whose prices are kept."""

    id: str
    quote: Quote
    priority: Priority
    arrived: float
    done: dict[str, int] = field(default_factory=dict)
    served: float = 0.0
    rows: int = 1

    @property
    def cost(self) -> float:
        return self.quote.cost

    @property
    def remaining(self) -> float:
        return self.quote.remaining

    @property
    def node(self) -> NodeSteps:
        return next(one for name, one in self.quote.steps.items() if name in self.done)

    @property
    def key(self) -> StepKey:
        return self.node.key


@dataclass(slots=True, kw_only=True, eq=False)
class Anew:
    """The same candidate, priced whenever it is asked: the formula, written out."""

    kept: Priced
    pricing: Pricing

    @property
    def id(self) -> str:
        return self.kept.id

    @property
    def priority(self) -> Priority:
        return self.kept.priority

    @property
    def arrived(self) -> float:
        return self.kept.arrived

    @property
    def served(self) -> float:
        return self.kept.served

    @property
    def key(self) -> StepKey:
        return self.kept.key

    @property
    def rows(self) -> int:
        return self.kept.rows

    @property
    def cost(self) -> float:
        return sum(self._seconds(one, 0) for one in self.kept.quote.steps.values())

    @property
    def remaining(self) -> float:
        return sum(self._seconds(self.kept.quote.steps[node], done) for node, done in self.kept.done.items())

    def _seconds(self, one: NodeSteps, done: int) -> float:
        cost = self.pricing.times.of(one.key)
        expected = max(one.total * cost.share, done + 1)
        return (min(expected, one.total) - done) * cost.seconds(1)


class Rounds(RuleBasedStateMachine):
    """Jobs come, take steps, alone and together, and end, some early, while steps are measured all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.pricing = Pricing(clock=count(step=1.0).__next__)  # it follows every measurement
        self.jobs: list[Priced] = []
        self.now, self.came = 0.0, 0
        join = Joining(times=self.pricing.times, max_rows=4)
        self.kept, self.anew = (LeastRemaining(join, patience=Patience(costs=3.0)) for _ in range(2))

    @rule(
        large=st.booleans(),
        steps=st.integers(1, 12),
        priority=st.sampled_from(Priority),
        rested=st.booleans(),
    )
    def arrive(self, large: bool, steps: int, priority: Priority, rested: bool) -> None:
        """One that rested has its first node behind it."""
        nodes = [
            NodeSteps(node=name, key=one, total=steps if name == "denoise" else 1)
            for name, one in zip(("text", "denoise", "decode"), NODES[large], strict=True)
        ]
        finished = ("text",) if rested else ()
        self.came += 1
        self.jobs.append(
            Priced(
                id=f"{self.came:04}",
                quote=Quote(self.pricing.tariff(nodes), finished),
                priority=priority,
                arrived=self.now,
                done={one.node: 0 for one in nodes if one.node not in finished},
            )
        )

    @precondition(lambda self: self.jobs)
    @rule(seconds=st.floats(0.001, 10.0), early=st.booleans(), measured=st.booleans())
    def step(self, seconds: float, early: bool, measured: bool) -> None:
        """Those whose turn it is take it, and both schedulers are told; the step is learned now, or never."""
        chosen = self.chosen()
        for job in chosen:
            node = job.node
            job.done[node.node] += 1
            done = job.done[node.node]
            last = early or done == node.total
            job.quote.did(node.node, done, last=last)
            job.served += seconds
            if last:
                del job.done[node.node]
        if measured:
            chosen[0].quote.took("denoise", len(chosen), seconds)
        self.now += seconds
        self.kept.ran(chosen, seconds)
        self.anew.ran(chosen, seconds)
        self.jobs = [job for job in self.jobs if job.done]

    @rule(large=st.booleans(), node=st.integers(0, 2), jobs=st.integers(1, 4), seconds=st.floats(0.001, 10.0))
    def measure(self, large: bool, node: int, jobs: int, seconds: float) -> None:
        """Another job, which has come and gone, took a step."""
        self.pricing.observe(NODES[large][node], jobs, seconds)

    @rule(large=st.booleans(), node=st.integers(0, 2), share=st.floats(0.01, 1.0))
    def end_early(self, large: bool, node: int, share: float) -> None:
        self.pricing.ended(NODES[large][node], share)

    @rule(seconds=st.floats(0.0, 100.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def prices_are_as_worked_out_anew(self) -> None:
        for job in self.jobs:
            anew = Anew(kept=job, pricing=self.pricing)
            assert (job.cost, job.remaining) == (anew.cost, anew.remaining)

    def chosen(self) -> Sequence[Priced]:
        """Those whose turn it is, by either way."""
        anew = [Anew(kept=job, pricing=self.pricing) for job in self.jobs]
        chosen = self.kept.next(self.jobs, self.now)
        assert [one.id for one in chosen] == [one.id for one in self.anew.next(anew, self.now)]
        return chosen


TestRounds = Rounds.TestCase
TestRounds.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_alike_requests_have_one_tariff_and_others_their_own(totals: Sequence[int]) -> None:
    pricing = Pricing()
    quotes = [Quote(pricing.tariff([NodeSteps(node="one", key=NODES[0][0], total=one)])) for one in totals]
    tariffs = {id(quote._tariff) for quote in quotes}
    assert len(tariffs) == len(set(totals))


def test_prices_follow_first_measurements_at_once_and_later_ones_soon() -> None:
    now = 0.0
    pricing = Pricing(clock=lambda: now)
    text, denoise, _ = NODES[0]
    quote = Quote(pricing.tariff([NodeSteps(node="one", key=text, total=4)]))
    other = Quote(pricing.tariff([NodeSteps(node="two", key=denoise, total=2)]))
    pricing.observe(text, 1, 1.0)
    guessed = other.remaining
    pricing.observe(denoise, 1, 3.0)
    assert (quote.remaining, other.remaining) == (4.0, 6.0) and guessed != 6.0
    pricing.observe(text, 1, 2.0)
    assert quote.remaining == 4.0
    now += FOLLOWS_S
    pricing.observe(text, 1, 2.0)
    assert quote.remaining == 8.0
