"""A program: which components and loops a task runs, in which order, and the values that pass between them.

Nodes name components and loops of the card by id and read and write named slots. A slot is a plain value of the
request (`PLAIN_SLOTS`, "request.params.<name>"), an input of the request ("request.image"), or the output of an
earlier node. What a node reads decides when it runs: as soon as every writer of it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from fv_core.request import Modality, ResolvedRequest

REQUEST_NUMBERS = ("frames", "fps", "guidance", "steps")
"""Numbers of a settled request that a `When` may compare, beside `params.<name>`."""

Plain: TypeAlias = str | int | float | bool
"""A value of a request that is no tensor."""

_NUMBER_SLOTS: Final[Mapping[str, Callable[[ResolvedRequest], Plain]]] = {
    "request.prompt": lambda request: request.prompt,
    "request.negative_prompt": lambda request: request.negative_prompt,
    "request.width": lambda request: request.size.width,
    "request.height": lambda request: request.size.height,
    "request.frames": lambda request: request.frames,
    "request.fps": lambda request: request.fps,
    "request.steps": lambda request: request.steps,
    "request.guidance": lambda request: request.guidance,
    "request.seed": lambda request: request.seed,
}
PLAIN_SLOTS: Final = tuple(_NUMBER_SLOTS)
"""Slots that hold a plain value of the request; beside them `request.params.<name>` for each parameter of the card."""

_PARAMS: Final = "request.params."
_INPUTS: Final = "request.inputs."


def request_value(request: ResolvedRequest, slot: str) -> Plain:
    """The plain value of the request that a slot names; of "request.inputs.<modality>" whether it brings one.

    Raises:
        KeyError: the slot is none of `PLAIN_SLOTS` and no parameter of the request.
    """
    if slot.startswith(_PARAMS):
        return request.params[slot.removeprefix(_PARAMS)]
    if slot.startswith(_INPUTS):
        return any(one.modality == slot.removeprefix(_INPUTS) for one in request.inputs)
    return _NUMBER_SLOTS[slot](request)


class Compare(StrEnum):
    """How `When` compares."""

    GREATER = ">"
    EQUAL = "=="


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Runs a node only if a value of the request compares so: data, hence validated and shown.

    `field` is one of `REQUEST_NUMBERS`, `params.<name>` of the card, or `inputs.<modality>`: whether the request
    brings that optional input.
    """

    field: str
    compare: Compare
    value: bool | float | str

    def holds(self, request: ResolvedRequest) -> bool:
        have = request_value(request, f"request.{self.field}")
        if self.compare is Compare.EQUAL:
            return have == self.value
        assert not isinstance(have, str) and not isinstance(self.value, str), "validated"
        return have > self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input that a task reads, needed unless it is `optional`: it is the slot `request.<modality>`.

    Image: uint8 [H, W, 3]. Video: uint8 [F, H, W, 3]. Audio: fp32 [channels, samples]. Action: fp32 [T, D]. With
    `sizes`, of an image or a video, a request that gives no size gets the input's own, which must be legal: nothing is
    resized unasked.
    """

    modality: Modality
    sizes: bool = False
    optional: bool = False

    @property
    def slot(self) -> str:
        return f"request.{self.modality}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentNode:
    """One call of one component.

    `reads` maps the names of the op's rows to slots; `writes` maps the op's outputs to slots; `static` are call-wide
    arguments. `optional` names reads that may be absent (their writer has a `when`).
    """

    id: str
    label: str
    component: str
    op: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    static: Mapping[str, Plain] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    when: When | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopNode:
    """One loop from init to finalize.

    `optional` names reads that may be absent (their writer has a `when`); `streams` those that arrive chunk by chunk
    while their writer, another loop, still runs. What a component wrote is read as a reference, except by the roles in
    `tensors`, for loops that compute with it.
    """

    id: str
    label: str
    loop: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    optional: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    when: When | None = None


Node: TypeAlias = ComponentNode | LoopNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A graph of nodes; their order breaks ties between those that could run.

    Args:
        artifacts: what the task yields to the slot that holds it: "video" fp32 [F, H, W, 3] in [0, 1], "audio" fp32
            [channels, samples] in [-1, 1], "text" a string, "action" fp32 [T, D].
        inputs: what a request must bring beside its prompt, one of each modality.
        fixed: numbers of the request (`REQUEST_NUMBERS`) that the task settles: one frame for an image, none for text.
        defaults: of parameters of the card, where this task's differ.
        sample_rate: of the artifact "audio", in Hz; 0 without one.
    """

    nodes: tuple[Node, ...]
    artifacts: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[InputSpec, ...] = ()
    fixed: Mapping[str, float] = field(default_factory=dict)
    defaults: Mapping[str, Plain] = field(default_factory=dict)
    sample_rate: int = 0

    def active(self, request: ResolvedRequest) -> tuple[Node, ...]:
        """The nodes that this request runs."""
        return tuple(node for node in self.nodes if node.when is None or node.when.holds(request))

    def yields(self, request: ResolvedRequest) -> Mapping[str, str]:
        """The artifacts that this request gets, with their slots: those that an active node writes."""
        written = {slot for node in self.active(request) for slot in node.writes.values()}
        return {name: slot for name, slot in self.artifacts.items() if slot in written}
