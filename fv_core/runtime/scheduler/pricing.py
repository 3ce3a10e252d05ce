"""What the rest of a request will take, step by step of its program, from what such steps took before."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from fv_core.errors import FvError
from fv_core.program import Node
from fv_core.request import Environment, ResolvedRequest
from fv_core.runtime.environment import environment, environment_hash
from fv_core.runtime.estimate import component_ids
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.runtime.scheduler.book import CostBook, Entry, Shape
from fv_core.runtime.scheduler.cost import LEARNS, CostModel

SLOW: Final = 1e-10
"""Seconds per multiplication before anything was measured: a small CPU."""
FOLLOWS_S: Final = 0.02
"""Seconds between two times that prices follow what was learned: no order hangs on the noise of so short a time."""
EVERY_S: Final = 10.0
"""Seconds between two times that what was learned is written."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepKey:
    """What makes two steps alike: they take the same time, and may share a forward.

    `card` is the card's digest, `machine` the hash of its environment. Alike is the same key: each is made once per
    `Pricing`, because a key is looked up for every job in every round.
    """

    card: str
    machine: str
    shape: Shape
    work: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSteps:
    """A node of a request: the key of its steps, and the most that there are."""

    node: str
    key: StepKey
    total: int


NodePrice: TypeAlias = tuple[int, float, float]
"""Of a node: the most steps that there are, those that are expected, and predicted seconds of one."""


class Tariff:
    """What the nodes of alike requests take, alone: worked out once for all of them whenever something was learned.

    Args:
        steps: the nodes; `Pricing.tariff` gives equal ones the same tariff.
    """

    def __init__(self, pricing: Pricing, steps: Sequence[NodeSteps]) -> None:
        self.pricing = pricing
        self.steps = {one.node: one for one in steps}
        self._costs = {one.node: pricing.times.of(one.key) for one in steps}
        self._now: tuple[int, Mapping[str, NodePrice], float] = (-1, {}, 0.0)

    @property
    def whole(self) -> float:
        """Predicted seconds of all nodes."""
        return self._current()[2]

    def left(self, done: Mapping[str, int]) -> float:
        """Predicted seconds of what is left of nodes of which so many steps are done."""
        return _seconds(self._current()[1], done)

    def knows(self, nodes: Iterable[str]) -> bool:
        """Whether steps of all these nodes were measured on this machine."""
        return all(self._costs[node].known for node in nodes)

    def step_s(self, node: str) -> float:
        """Predicted seconds of a step of a node; infinite where no such step was measured on this machine."""
        cost = self._costs[node]
        return cost.seconds(1) if cost.known else math.inf

    def _current(self) -> tuple[int, Mapping[str, NodePrice], float]:
        now = self._now
        if now[0] != (learned := self.pricing.learned):
            prices = self._worked_out()
            # All at once, for requests are priced beside the steps.
            self._now = now = (learned, prices, _seconds(prices, dict.fromkeys(prices, 0)))
        return now

    def _worked_out(self) -> Mapping[str, NodePrice]:
        return {
            node: (one.total, one.total * cost.share, cost.seconds(1))
            for (node, one), cost in zip(self.steps.items(), self._costs.values(), strict=True)
        }


def _seconds(prices: Mapping[str, NodePrice], done: Mapping[str, int]) -> float:
    """Of the steps that are left of each node in `done`; at least one is, as the node goes on."""
    seconds = 0.0
    for node, steps in done.items():
        total, expected, step_s = prices[node]
        seconds += (min(max(expected, steps + 1), total) - steps) * step_s
    return seconds


class Quote:
    """What one request is predicted to take, in seconds of the device, while nothing shares its forwards.

    It is asked for in every round, and works out what is left only where a step was taken or something was learned.

    Args:
        finished: nodes that are done.
    """

    def __init__(self, tariff: Tariff, finished: Sequence[str] = ()) -> None:
        self._tariff = tariff
        self._pricing = tariff.pricing
        self.steps = tariff.steps
        self._done = {node: 0 for node in self.steps if node not in finished}
        self._remaining = 0.0
        self._worked_out = -1

    @property
    def cost(self) -> float:
        """Of all of it."""
        return self._tariff.whole

    @property
    def remaining(self) -> float:
        """Of what is left."""
        if self._worked_out != (learned := self._pricing.learned):
            self._remaining, self._worked_out = self._tariff.left(self._done), learned
        return self._remaining

    @property
    def eta_s(self) -> float | None:
        """As `remaining`; None until all kinds of steps that are left have been measured on this machine."""
        return self.remaining if self._tariff.knows(self._done) else None

    def key(self, node: str) -> StepKey:
        """Of the steps of a node."""
        return self.steps[node].key

    def step_s(self, node: str) -> float:
        """Predicted seconds of a step of a node, alone; infinite where no such step was measured on this machine."""
        return self._tariff.step_s(node)

    def took(self, node: str, jobs: int, seconds: float) -> None:
        """Learns what a step of a node lasted that so many jobs took together."""
        self._pricing.observe(self.key(node), jobs, seconds)

    def did(self, node: str, step: int, *, last: bool) -> None:
        """Follows the request: so many steps of a node are done, or all that it took."""
        if node not in self._done:
            return
        self._done[node], self._worked_out = step, -1
        if last:
            del self._done[node]
            self._pricing.ended(self.key(node), step / self.steps[node].total)


class Pricing:
    """Prices requests in predicted seconds and learns from every step.

    Args:
        book: outlives the process; without one everything is learned anew.
    """

    def __init__(self, book: CostBook | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.times = CostModel(prior=self._guess)
        self._book = book
        self._clock = clock
        self.learned = 0
        """How often something was learned: what was worked out before it holds while this stays the same."""
        self._tariffs: WeakValueDictionary[tuple[NodeSteps, ...], Tariff] = WeakValueDictionary()
        self._keys: dict[tuple[tuple[str, str], Shape], StepKey] = {}
        self._rates: dict[str, float] = {}
        self._pages: dict[tuple[str, str], tuple[str, Environment]] = {}
        self._notes: list[str] = []
        self._written = self._followed = -math.inf
        self._unwritten = False
        self._lock = threading.Lock()  # requests are priced beside the steps

    def quote(
        self,
        instance: ModelInstance,
        request: ResolvedRequest,
        *,
        finished: Sequence[str] = (),
        offload: Offload | None = None,
    ) -> Quote:
        """The price of a request on an instance.

        Args:
            finished: ids of the nodes that are done.
            offload: where components would rest, if not as the instance says.
        """
        machine = self._open(instance)
        card = instance.card
        latent = card.geometry(request.size, request.frames).latent
        positions = max(1, math.prod(latent[1:]))  # a text has no frames
        steps = [
            NodeSteps(
                node=node.id,
                key=self._key(
                    (instance.digest, machine),
                    _shape(instance, request, node, offload or instance.offload),
                    float(positions * _parameters(instance, node)),
                ),
                total=instance.loop_of(node).total(request),
            )
            for node in card.programs[request.task].active(request)
        ]
        return Quote(self.tariff(steps), finished)

    def tariff(self, steps: Sequence[NodeSteps]) -> Tariff:
        """That of such nodes, one for all requests that have them."""
        with self._lock:
            kept = self._tariffs.get(tuple(steps))
            if kept is None:
                kept = self._tariffs[tuple(steps)] = Tariff(self, steps)
            return kept

    def observe(self, key: StepKey, jobs: int, seconds: float) -> None:
        """Takes in what a step that so many jobs took together lasted."""
        with self._lock:
            known, now = self.times.knows(key), self._clock()
            self.times.observe(key, jobs, seconds)
            self._rate(key, seconds / jobs)
            self._unwritten = True
            if not known or now - self._followed >= FOLLOWS_S:
                self._followed, self.learned = now, self.learned + 1

    def ended(self, key: StepKey, share: float) -> None:
        """Takes in which part of its steps a node took."""
        with self._lock:
            if self.times.knows(key):
                self.times.ended(key, share)
                self.learned += 1

    def keep(self, *, now: bool = False) -> None:
        """Writes what was learned, if that is due, or `now`; what fails is told by `notes`."""
        if self._book is None or not self._unwritten:
            return
        if not now and self._clock() - self._written < EVERY_S:
            return
        with self._lock:
            self._written, self._unwritten = self._clock(), False
            pages, learned = tuple(self._pages.items()), tuple(self.times.learned())
        for (card, machine), (model, env) in pages:
            entries = tuple(
                Entry(shape=key.shape, work=key.work, learned=known)
                for key, known in learned
                if isinstance(key, StepKey) and (key.card, key.machine) == (card, machine)
            )
            if not entries:
                continue
            try:
                self._book.write(model, card, env, entries)
            except FvError as error:
                self._notes.append(f"what steps take could not be kept for the next run: {error.message}")

    def notes(self) -> tuple[str, ...]:
        """What went wrong with the book since they were asked for last, a sentence each."""
        told, self._notes = tuple(self._notes), []
        return told

    def _key(self, page: tuple[str, str], shape: Shape, work: float) -> StepKey:
        key = StepKey(card=page[0], machine=page[1], shape=shape, work=work)
        return self._keys.setdefault((page, shape), key)

    def _open(self, instance: ModelInstance) -> str:
        """Reads the page of a card on this machine, once; the machine's hash."""
        env = environment(instance.card, instance.device)
        page = (instance.digest, environment_hash(env))
        with self._lock:
            if page not in self._pages:
                self._pages[page] = (instance.card.model_id, env)
                self._restore(page, env)
        return page[1]

    def _restore(self, page: tuple[str, str], env: Environment) -> None:
        if self._book is None:
            return
        entries, unreadable = self._book.read(page[0], env)
        if unreadable is not None:
            self._notes.append(unreadable)
        for entry in entries:
            key = self._key(page, entry.shape, entry.work)
            self.times.restore(key, entry.learned)
            self._rate(key, self.times.step_seconds(key, 1))
        self.learned += 1

    def _rate(self, key: StepKey, seconds: float) -> None:
        """Learns seconds per multiplication of a node, and of all nodes, for shapes that were never measured."""
        for kind in (key.shape.node, ""):
            rate = self._rates.setdefault(kind, seconds / key.work)
            self._rates[kind] += LEARNS * (seconds / key.work - rate)

    def _guess(self, key: Hashable) -> float:
        assert isinstance(key, StepKey)
        return key.work * self._rates.get(key.shape.node, self._rates.get("", SLOW))


def _shape(instance: ModelInstance, request: ResolvedRequest, node: Node, offload: Offload) -> Shape:
    stack = "\n".join(f"{one.sha256}:{one.scale!r}" for one in request.adapters)
    return Shape(
        node=node.id,
        size=request.size,
        frames=request.frames,
        guided=request.guidance > 1,
        numerics=request.numerics,
        dtype=str(instance.dtype).removeprefix("torch."),
        offload=offload.value,
        adapters=hashlib.sha256(stack.encode()).hexdigest()[:16] if stack else "",
    )


def _parameters(instance: ModelInstance, node: Node) -> int:
    components = instance.card.components
    return max(1, sum(components[one].parameters for one in component_ids(instance.card, node)))
