"""Which nodes read nothing but what a request gives: what they return is worth keeping for the next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fv_core.plugins import find_card
from fv_core.program import ComponentNode, LoopNode, Node, given_nodes
from fv_core.request import TaskType


def part(ident: str, *reads: str, writes: str = "") -> ComponentNode:
    return ComponentNode(
        id=ident, label=ident, component="part", op="op", reads={read: read for read in reads},
        writes={"out": writes or ident},
    )  # fmt: skip


def loop(ident: str, *reads: str, writes: str = "") -> LoopNode:
    return LoopNode(
        id=ident,
        label=ident,
        loop="loop",
        reads={read: read for read in reads},
        writes={"out": writes or ident},
    )


CASES: dict[str, tuple[tuple[Node, ...], set[str]]] = {
    "text, numbers, parameters and inputs": (
        (part("a", "request.prompt", "request.width", "request.params.view", "request.image"),),
        {"a"},
    ),
    "the seed": ((part("a", "request.prompt", "request.seed"), part("b", "a")), set()),
    "what a given node writes": ((part("a", "request.prompt"), part("b", "a")), {"a", "b"}),
    "what a loop writes": ((part("a", "request.prompt"), loop("b", "a"), part("c", "b")), {"a"}),
    "a slot that a loop writes too": (
        (part("a", "request.prompt", writes="x"), part("b", "x"), loop("c", "x", writes="x")),
        {"a"},
    ),
    "nothing": ((part("a"),), {"a"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_node_is_given_if_all_that_it_reads_is(case: str) -> None:
    nodes, expected = CASES[case]
    assert given_nodes(nodes) == expected


def test_a_card_encodes_its_prompts_and_draws_the_rest() -> None:
    nodes = find_card("wan21/micro").programs[TaskType.T2V].nodes
    assert given_nodes(nodes) == {"encode", "encode_negative"}
    seeded = [replace(node, reads={**node.reads, "seed": "request.seed"}) for node in nodes]
    assert given_nodes(seeded) == set()
