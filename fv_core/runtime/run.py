"""One request in progress: a program walked node by node, each node a loop driven step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fv_core.cache import ValueRef
from fv_core.extend.chain import Chain, Enabled
from fv_core.loop import Done, Emission, Loop, LoopEnv, Slot, StepResult, held_refs
from fv_core.program import ComponentNode, LoopNode, Node
from fv_core.request import CancelScope, ResolvedRequest
from fv_core.runtime.executor import Work
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.scope import RequestScope
from fv_core.runtime.watch import NonFiniteWatch


class RequestRun:
    """Walks the program of one request. Between two steps everything that changes is in `node`, `state`, `slots`,
    `chain` and `notes`: that is what a snapshot stores.
    """

    def __init__(
        self,
        request_id: str,
        request: ResolvedRequest,
        instance: ModelInstance,
        scope: RequestScope,
        *,
        cancel: CancelScope,
        extensions: Sequence[Enabled] = (),
    ) -> None:
        self.id = request_id
        self.request = request
        self.instance = instance
        self.scope = scope
        self.cancel = cancel
        self.extensions = tuple(extensions)
        self.nodes: tuple[Node, ...] = instance.card.programs[request.task].active(request)
        self.node = 0
        self.state: Any = None
        self.chain = Chain(enabled=self.extensions)
        self.notes: tuple[str, ...] = request.adjusted
        self.slots: dict[str, Slot] = {
            "request.prompt": request.prompt,
            "request.negative_prompt": request.negative_prompt,
        }
        self._watch = NonFiniteWatch()
        self._loop: Loop[Any, Any] | None = None

    @property
    def done(self) -> bool:
        return self.node == len(self.nodes)

    @property
    def current(self) -> Node:
        return self.nodes[self.node]

    @property
    def loop(self) -> Loop[Any, Any]:
        if self._loop is None:
            self._loop = self.instance.loop_of(self.current)
        return self._loop

    def total_steps(self) -> int:
        """Steps of every node this request runs."""
        return sum(self.instance.loop_of(node).total(self.request) for node in self.nodes)

    def work(self) -> Work:
        """The next step; only while not `done`."""
        if self.state is None:
            self.state = self._init()
        plan = self.loop.next(self.state)
        assert not isinstance(plan, Done), "commit moves on when a loop is done"
        return Work(
            plan=plan,
            instance=self.instance,
            scope=self.scope,
            cancel=self.cancel,
            numerics=self.request.numerics,
            chain=self.chain,
        )

    @torch.no_grad()
    def commit(self, work: Work, result: StepResult) -> tuple[Emission, ...]:
        """Takes the step's result in, and moves on to the next node when the loop is done.

        Raises:
            FvError: FV501 not finite, FV502 the loop failed on the result.
        """
        self._watch.add(work.plan, result, work.chain)
        loop, old = self.loop, self.state
        new = loop.update(old, loop.predict(old, result), result)
        emissions = loop.emit(old, new)
        finished = isinstance(loop.next(new), Done)
        if emissions or finished:
            self._watch.check()
        self.notes += tuple(note for out in result.outputs for note in out.notes if note not in self.notes)
        self.state = new
        if finished:
            self._finish_node()
        self.scope.keep(self._held())
        return emissions

    def check_finite(self) -> None:
        """Raises:
        RunError: FV501, something not finite has come back that has not been looked at yet.
        """
        self._watch.check()

    def tensor(self, slot: str) -> Tensor:
        """The tensor in a slot, stored by reference or not."""
        value = self.slots[slot]
        tensor = self.scope.get(value) if isinstance(value, ValueRef) else value
        assert isinstance(tensor, Tensor), f"slot {slot} holds a {type(tensor).__name__}"
        return tensor

    def needed_slots(self) -> set[str]:
        """What later nodes read, and what the caller gets."""
        reads = {slot for node in self.nodes[self.node :] for slot in node.reads.values()}
        return reads | self.returned_slots()

    def returned_slots(self) -> set[str]:
        """The slots whose tensors the caller gets."""
        program = self.instance.card.programs[self.request.task]
        return set(program.artifacts.values()) | set(self.request.keep)

    def _init(self) -> Any:
        node = self.current
        optional = node.optional if isinstance(node, LoopNode) else ()
        inputs = {
            role: self.slots[slot]
            for role, slot in node.reads.items()
            if slot in self.slots or role not in optional
        }
        env = LoopEnv(device=self.instance.device, scope=f"{self.id}/{node.id}", owner=self.id)
        return self.loop.init(self.request, inputs, env)

    def _finish_node(self) -> None:
        node = self.current
        outputs = self.loop.finalize(self.state).slots
        for name, slot in node.writes.items():
            self.slots[slot] = (
                self._stored(outputs[name]) if isinstance(node, ComponentNode) else outputs[name]
            )
        self.node += 1
        self.state = None
        self._loop = None
        self.chain = Chain(enabled=self.extensions)
        self._drop_unread_slots()

    def _stored(self, value: Slot) -> ValueRef | str | Tensor:
        """Component outputs are rows of many calls: stored once and passed by reference."""
        return self.scope.put(value) if isinstance(value, Tensor) else value

    def _drop_unread_slots(self) -> None:
        """Frees what no later node reads and nobody asked for."""
        needed = self.needed_slots()
        self.slots = {slot: value for slot, value in self.slots.items() if slot in needed}

    def _held(self) -> frozenset[Any]:
        states = tuple(self.chain.states.values())
        return held_refs((self.state, tuple(self.slots.values()), states))
