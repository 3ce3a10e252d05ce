"""Which nodes depend on nothing but what the request gives: requests that give the same get the same from them."""

from __future__ import annotations

from collections.abc import Sequence

from fv_core.program.program import ComponentNode, Node

_DRAWN = "request.seed"


def given_nodes(nodes: Sequence[Node]) -> frozenset[str]:
    """Ids of the component nodes that read only text, numbers and inputs of the request, and what such nodes write.

    The seed is not among them: what depends on it is another for every sample.

    Args:
        nodes: those that the request runs, in the program's order.
    """
    loops = [node for node in nodes if not isinstance(node, ComponentNode)]
    made = {_DRAWN, *(slot for node in loops for slot in node.writes.values())}
    found = set()
    for node in nodes:
        if isinstance(node, ComponentNode) and made.isdisjoint(node.reads.values()):
            found.add(node.id)
        else:
            made |= set(node.writes.values())
    return frozenset(found)
