"""A program: which components and loops a task runs, in which order, and the values that pass between them.

Nodes name components and loops of the card by id and read and write named slots. A slot is either a field of the
request ("request.prompt", "request.negative_prompt") or the output of an earlier node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from fv_core.request import ResolvedRequest

REQUEST_SLOTS = ("request.prompt", "request.negative_prompt")
REQUEST_NUMBERS = ("frames", "fps", "guidance", "steps")
"""Fields of a settled request that a `When` may compare."""


class Compare(StrEnum):
    """How `When` compares."""

    GREATER = ">"
    EQUAL = "=="


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Runs a node only if a number of the request (`REQUEST_NUMBERS`) compares so: data, hence validated and shown."""

    field: str
    compare: Compare
    value: float

    def holds(self, request: ResolvedRequest) -> bool:
        have = getattr(request, self.field)
        return bool(have > self.value) if self.compare is Compare.GREATER else bool(have == self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentNode:
    """One call of one component.

    `reads` maps the names of the op's rows to slots; `writes` maps the op's outputs to slots.
    """

    id: str
    label: str
    component: str
    op: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    when: When | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopNode:
    """One loop from init to finalize. `optional` names reads that may be absent (their writer has a `when`)."""

    id: str
    label: str
    loop: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    optional: tuple[str, ...] = ()
    when: When | None = None


Node: TypeAlias = ComponentNode | LoopNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Nodes in the order they run. `artifacts` maps what the task yields ("video") to the slot that holds it."""

    nodes: tuple[Node, ...]
    artifacts: Mapping[str, str] = field(default_factory=dict)

    def active(self, request: ResolvedRequest) -> tuple[Node, ...]:
        """The nodes that this request runs."""
        return tuple(node for node in self.nodes if node.when is None or node.when.holds(request))
