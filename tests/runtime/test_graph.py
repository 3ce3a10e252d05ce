"""A program as a graph: what runs when, and streams that reach a reader which would open late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from fv_core import Engine, ModelCard, Request, TaskType, derive
from fv_core.card import validate
from fv_core.plugins import find_card
from fv_core.program import LoopNode, Program

CAUSAL = find_card("wan-causal/tiny")
REQUEST = Request(prompt="a ball", model=CAUSAL.model_id, frames=21, seed=3, size=(32, 32))


def with_nodes(card: ModelCard, program: Program, **more: object) -> ModelCard:
    return derive(card, programs={**card.programs, TaskType.T2V: program}, **more)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def late_reader() -> ModelCard:
    """The decoder also reads what a second rollout writes, which stands after the first one."""
    program = CAUSAL.programs[TaskType.T2V]
    nodes = {node.id: node for node in program.nodes}
    rollout, decode = nodes["rollout"], nodes["decode"]
    assert isinstance(rollout, LoopNode) and isinstance(decode, LoopNode)
    second = replace(rollout, id="second", writes={"latent": "other"})
    reads = {**decode.reads, "other": "other"}
    rest = tuple(node for node in program.nodes if node.id not in ("rollout", "decode"))
    return with_nodes(CAUSAL, replace(program, nodes=(*rest, rollout, second, replace(decode, reads=reads))))


def test_stream_begins_only_when_its_reader_could_take_it() -> None:
    card = late_reader()
    assert validate(card) == ()
    with Engine([CAUSAL], device="cpu") as engine:
        expected = engine.run(REQUEST).frames
    with Engine([card], device="cpu") as engine:
        job, order = engine.start(REQUEST), []
        while not job.done:
            order.append(job.run.current.id)
            job.step()
        frames = engine.clip(job).frames
        job.close()
    assert np.array_equal(frames, expected)
    assert order.index("rollout") > max(step for step, node in enumerate(order) if node == "second")


def test_stream_of_a_node_that_something_else_is_made_from_is_refused() -> None:
    card = late_reader()
    program = card.programs[TaskType.T2V]
    nodes = tuple(
        replace(node, reads={**node.reads, "prefix": "latent"}, optional=(), tensors=("prefix",))
        if isinstance(node, LoopNode) and node.id == "second"
        else node
        for node in program.nodes
    )
    findings = validate(with_nodes(card, replace(program, nodes=nodes)))
    assert [finding.code for finding in findings] == ["FV205"]
    assert "stream" in findings[0].message
