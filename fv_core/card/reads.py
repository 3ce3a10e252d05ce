"""Program reads: every input of a node is there whenever the node runs, and what a task yields is always made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fv_core.errors import CardError
from fv_core.program import REQUEST_SLOTS, LoopNode, Node, Program, When
from fv_core.request import TaskType

YIELDS = {TaskType.T2V: "video"}
"""The artifact that a task's caller gets."""


def reads(task: TaskType, program: Program) -> Iterator[CardError]:
    """FV205 for each read that may find nothing."""
    written: defaultdict[str, set[When | None]] = defaultdict(set)  # slot -> when each of its writers runs
    for slot in REQUEST_SLOTS:
        written[slot].add(None)
    for node in program.nodes:
        for role, slot in node.reads.items():
            if slot not in written or not (_is_optional(node, role) or written[slot] & {None, node.when}):
                yield _unwritten(f"programs.{task}.{node.id}.reads[{role}]", slot, written)
        for slot in node.writes.values():
            written[slot].add(node.when)
    for artifact in {YIELDS[task]: None, **program.artifacts}:
        slot = program.artifacts.get(artifact, "")
        if None not in written.get(slot, ()):
            yield _unwritten(f"programs.{task}.artifacts[{artifact}]", slot, written)


def _is_optional(node: Node, role: str) -> bool:
    return isinstance(node, LoopNode) and role in node.optional


def _unwritten(name: str, value: str, written: dict[str, set[When | None]]) -> CardError:
    return CardError(
        "FV205",
        name=name,
        value=value,
        rule="is not always written before it is read",
        legal=", ".join(slot for slot, whens in written.items() if None in whens),
        remedy="Order the nodes so that its writer comes first, or name the read in `optional`.",
    )
