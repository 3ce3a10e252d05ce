"""Program reads: every input of a node is there whenever the node runs, and what a task yields is always made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from fv_core.card.card import ModelCard
from fv_core.errors import CardError
from fv_core.program import PLAIN_SLOTS, Compare, LoopNode, Node, Program, When
from fv_core.request import TaskType

YIELDS: Mapping[TaskType, tuple[str, ...]] = {
    TaskType.T2V: ("video",),
    TaskType.T2I: ("video",),
    TaskType.I2V: ("video",),
    TaskType.V2V: ("video",),
    TaskType.EDIT: ("video",),
    TaskType.QA: ("text",),
    TaskType.POLICY: ("video", "action"),
    TaskType.FORWARD_DYNAMICS: ("video",),
    TaskType.INVERSE_DYNAMICS: ("action",),
}
"""The artifacts that a task's caller always gets; an image is a video of one frame."""

KINDS = ("video", "audio", "text", "action")
"""All artifacts that there can be."""


def reads(card: ModelCard) -> Iterator[CardError]:
    """FV205 for each read that may find nothing."""
    for task, program in card.programs.items():
        yield from _reads(card, task, program)


def _reads(card: ModelCard, task: TaskType, program: Program) -> Iterator[CardError]:
    written: defaultdict[str, set[When | None]] = defaultdict(set)  # slot -> when each of its writers runs
    params = (f"request.params.{name}" for name in card.params)
    for slot in (*PLAIN_SLOTS, *params):
        written[slot].add(None)
    for one in program.inputs:
        there = When(field=f"inputs.{one.modality}", compare=Compare.EQUAL, value=True)
        written[one.slot].add(there if one.optional else None)
    looped: set[str] = set()
    for node in program.nodes:
        for role, slot in node.reads.items():
            found = written.get(slot, set())
            if not found or not (role in node.optional or node.when in found or _always(found)):
                yield _unwritten(f"programs.{task}.{node.id}.reads[{role}]", slot, written)
        for role in _streams(node):
            if node.reads.get(role) not in looped:
                yield _unstreamed(f"programs.{task}.{node.id}.streams", role, looped)
            elif role in _needing(program, node, node.reads[role]):
                yield _entangled(f"programs.{task}.{node.id}.streams", role)
        for slot in node.writes.values():
            written[slot].add(node.when)
            if isinstance(node, LoopNode):
                looped.add(slot)
    for artifact in {**dict.fromkeys(YIELDS[task]), **program.artifacts}:
        slot = program.artifacts.get(artifact, "")
        always = artifact in YIELDS[task]
        if not written.get(slot) or (always and not _always(written[slot])):
            yield _unwritten(f"programs.{task}.artifacts[{artifact}]", slot, written)


def _always(whens: set[When | None]) -> bool:
    """Whether one of the writers runs for every request."""
    if None in whens:
        return True
    settled = {(when.field, when.compare, when.value) for when in whens if when is not None}
    return any((field, compare, not value) in settled for field, compare, value in settled if value is True)


def _streams(node: Node) -> tuple[str, ...]:
    return node.streams if isinstance(node, LoopNode) else ()


def _needing(program: Program, reader: Node, streamed: str) -> set[str]:
    """The streaming roles of `reader` if what else it reads is made, in the end, of that very stream's writer."""
    earlier = program.nodes[: program.nodes.index(reader)]
    writers = {node.id for node in earlier if streamed in node.writes.values()}
    needed = {slot for role, slot in reader.reads.items() if role not in _streams(reader)}
    for node in reversed(earlier):
        if needed & set(node.writes.values()):
            if node.id in writers:
                return set(_streams(reader))
            needed |= set(node.reads.values())
    return set()


def _entangled(name: str, value: str) -> CardError:
    return CardError(
        "FV205",
        name=name,
        value=value,
        rule="is a stream of a node that something else which this node reads is made from",
        legal="reads that are there before the stream begins",
        remedy="Read the stream's whole output instead: take the role out of `streams`.",
    )


def _unwritten(name: str, value: str, written: dict[str, set[When | None]]) -> CardError:
    return CardError(
        "FV205",
        name=name,
        value=value,
        rule="is not always written before it is read",
        legal=", ".join(slot for slot, whens in written.items() if None in whens),
        remedy="Order the nodes so that its writer comes first, or name the read in `optional`.",
    )


def _unstreamed(name: str, value: str, looped: set[str]) -> CardError:
    return CardError(
        "FV205",
        name=name,
        value=value,
        rule="is not a read of what an earlier loop writes chunk by chunk",
        legal=", ".join(sorted(looped)) or "none",
        remedy="Read the output of a loop node that stands before, or take the role out of `streams`.",
    )
