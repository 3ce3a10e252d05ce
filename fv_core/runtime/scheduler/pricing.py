"""What the rest of a request will take, step by step of its program, from what such steps took before."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fv_core.card import ModelCard
from fv_core.program import LoopNode, Node
from fv_core.request import Numerics, ResolvedRequest, Size
from fv_core.runtime.estimate import component_ids
from fv_core.runtime.requests.params import build_loops
from fv_core.runtime.scheduler.cost import LEARNS, CostModel

SLOW: Final = 1e-10
"""Seconds per multiplication before anything was measured: a small CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKey:
    """What makes two steps alike: they take the same time, and may share a forward.

    `work` is a rough count of multiplications, from which the first guess for a shape is made.
    """

    model: str
    node: str
    size: Size
    frames: int
    numerics: Numerics
    dtype: str
    device: str
    work: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSteps:
    """A node of a request: the key of its steps, and the most that there are."""

    node: str
    key: StepKey
    total: int


class Pricing:
    """Prices requests in predicted seconds and learns from every step."""

    def __init__(self) -> None:
        self._per_work = SLOW
        self.times = CostModel(prior=self._guess)

    def steps(
        self, card: ModelCard, request: ResolvedRequest, *, dtype: str, device: str
    ) -> tuple[NodeSteps, ...]:
        """The nodes that the request runs, in the program's order."""
        loops = build_loops(card)
        latent = card.geometry(request.size, request.frames).latent
        return tuple(
            NodeSteps(
                node=node.id,
                key=StepKey(
                    model=card.model_id,
                    node=node.id,
                    size=request.size,
                    frames=request.frames,
                    numerics=request.numerics,
                    dtype=dtype,
                    device=device,
                    work=float(
                        max(1, math.prod(latent[1:])) * _parameters(card, node)
                    ),  # a text has no frames
                ),
                total=loops[node.loop].total(request) if isinstance(node, LoopNode) else 1,
            )
            for node in card.programs[request.task].active(request)
        )

    def observe(self, key: StepKey, jobs: int, seconds: float) -> None:
        """Takes in what a step that so many jobs took together lasted."""
        self.times.observe(key, jobs, seconds)
        self._per_work += LEARNS * (seconds / jobs / key.work - self._per_work)

    def left(self, steps: Sequence[NodeSteps], done: Mapping[str, int]) -> float:
        """Predicted seconds of what is left, alone; `done` counts the steps of each node that has begun."""
        return sum(
            (one.total - min(done.get(one.node, 0), one.total)) * self.times.step_seconds(one.key, 1)
            for one in steps
        )

    def _guess(self, key: Hashable) -> float:
        assert isinstance(key, StepKey)
        return key.work * self._per_work


def _parameters(card: ModelCard, node: Node) -> int:
    return max(1, sum(card.components[one].parameters for one in component_ids(card, node)))
