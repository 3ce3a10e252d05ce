"""One request in progress: a program walked node by node, each node a loop driven step by step.

Nodes whose inputs are there run side by side, one step of one node at a time, in turn. That is all the order there
is: it follows from the program alone, so a request takes the same steps wherever it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from fv_core.cache import CacheRef, ValueRef
from fv_core.errors import RunError
from fv_core.extend.chain import Chain, Enabled
from fv_core.loop import Done, Emission, Loop, LoopEnv, Slot, StepResult, Waiting, WorkPlan, held_refs
from fv_core.loop.driver import advance
from fv_core.loop.outputs import misfit
from fv_core.program import ComponentNode, LoopNode, Node, given_nodes, request_value
from fv_core.request import EVERYTHING, CancelScope, ResolvedRequest
from fv_core.runtime.adapters import AdapterStack
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.scope import RequestScope
from fv_core.runtime.watch import NonFiniteWatch


class NodeRun:
    """A node that has begun, or could: its loop, the interceptors around it, its state (None before its first step)."""

    def __init__(self, *, node: Node, loop: Loop[Any, Any], chain: Chain) -> None:
        self.node = node
        self.loop = loop
        self.chain = chain
        self.streams = node.streams if isinstance(node, LoopNode) else ()
        self._state: Any = None
        self._plan: WorkPlan | Waiting | Done | None = None

    @property
    def state(self) -> Any:
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state, self._plan = state, None

    @property
    def plan(self) -> WorkPlan | Waiting | Done:
        """What comes next: a function of the state, so it is asked for once. Only where there is a state."""
        if self._plan is None:
            self._plan = self.loop.next(self._state)
        return self._plan

    @property
    def waiting(self) -> bool:
        """Whether it needs a chunk of a stream before its next step."""
        return bool(self.streams) if self._state is None else isinstance(self.plan, Waiting)


class RequestRun:
    """Walks the program of one request. Between two steps everything that changes is in `finished`, `frontier`,
    `turn`, `slots` and `notes`: that is what a snapshot stores.

    Args:
        inputs: tensors of the request's inputs by slot ("request.image").
        adapters: the request's, bound to the instance.
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
        inputs: Mapping[str, Tensor] | None = None,
        adapters: AdapterStack | None = None,
    ) -> None:
        self.id = request_id
        self.request = request
        self.instance = instance
        self.scope = scope
        self.cancel = cancel
        self.extensions = tuple(extensions)
        self.adapters = AdapterStack() if adapters is None else adapters
        self.program = instance.card.programs[request.task]
        self.nodes: tuple[Node, ...] = self.program.active(request)
        self.artifacts = self.program.yields(request)
        self.notes: tuple[str, ...] = request.adjusted
        self.given = self._given()
        self._given_nodes = given_nodes(self.nodes)
        self.slots: dict[str, Slot] = {slot: scope.put(tensor) for slot, tensor in (inputs or {}).items()}
        self.slots |= self.given
        self.finished: tuple[str, ...] = ()
        self.frontier: dict[str, NodeRun] = {}
        self.turn = ""
        self._watch = NonFiniteWatch(instance.device)
        self.open_nodes()
        self._pass_turn()

    @property
    def done(self) -> bool:
        return not self.frontier

    @property
    def now(self) -> NodeRun:
        """The node whose turn it is; only while not `done`."""
        return self.frontier[self.turn]

    @property
    def current(self) -> Node:
        return self.now.node

    @property
    def loop(self) -> Loop[Any, Any]:
        return self.now.loop

    @property
    def state(self) -> Any:
        return self.now.state

    @state.setter
    def state(self, state: Any) -> None:
        self.now.state = state

    @property
    def chain(self) -> Chain:
        return self.now.chain

    def total_steps(self) -> int:
        """The most steps that the nodes of this request can take."""
        return sum(self.instance.loop_of(node).total(self.request) for node in self.nodes)

    def work(self) -> Work:
        """The next step of the node whose turn it is; only while not `done`."""
        now = self.now
        if now.state is None:
            now.state = self._init(now)
        plan = now.plan
        assert not isinstance(plan, (Done, Waiting)), "a node that is done or waits has no turn"
        return Work(
            plan=plan,
            instance=self.instance,
            scope=self.scope,
            cancel=self.cancel,
            numerics=self.request.numerics,
            chain=now.chain,
            given=now.node.id in self._given_nodes,
            adapters=self.adapters,
        )

    def commit(self, work: Work, result: StepResult) -> tuple[Emission, ...]:
        """Takes the step's result in, hands its chunks on, and passes the turn.

        Returns:
            The chunks of artifacts, for the caller of the request; `output` is the artifact's name.

        Raises:
            FvError: FV501 not finite, FV502 the loop failed on the result.
        """
        now, finished = self.now, self.finished
        self._watch.add(work.plan, result, work.chain)
        old = now.state
        now.state = new = advance(now.loop, old, result)
        emissions = now.loop.emit(old, new)
        ended = isinstance(now.plan, Done)
        if emissions or ended:
            self._watch.check()
        told = (note for out in result.outputs for note in out.notes)
        self.notes = tuple(dict.fromkeys((*self.notes, *told)))
        shown = tuple(chunk for emission in emissions for chunk in self._hand_on(now.node, emission))
        if ended:
            self._finish(now)
        if self.finished != finished:  # nothing else opens a node
            self.open_nodes()
        self._pass_turn()
        self.scope.keep(self.held())
        return shown

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
        """What nodes that are not done read, and what the caller gets."""
        reads = {slot for node in self.nodes if node.id not in self.finished for slot in node.reads.values()}
        return reads | self.returned_slots()

    def returned_slots(self) -> set[str]:
        """The slots whose contents the caller gets; of everything all but caches, which their readers use up."""
        kept = set(self.request.keep)
        if EVERYTHING in kept:
            written = {slot for node in self.nodes for slot in node.writes.values()}
            kept = {
                slot for slot in written & self.slots.keys() if not isinstance(self.slots[slot], CacheRef)
            }
        return set(self.artifacts.values()) | kept

    def open_nodes(self) -> None:
        """Opens the nodes that could take a step now, or once a stream brings something."""
        for node in self.nodes:
            if node.id not in self.finished and node.id not in self.frontier and self._is_ready(node):
                self.frontier[node.id] = NodeRun(
                    node=node, loop=self.instance.loop_of(node), chain=Chain(enabled=self.extensions)
                )

    def _pass_turn(self) -> None:
        """Gives the turn to the next open node, in the program's order, that does not wait.

        Raises:
            RunError: FV502, all of them wait.
        """
        if self.done:
            return
        ids = [node.id for node in self.nodes]
        first = ids.index(self.turn) + 1 if self.turn else 0
        order = [ident for ident in (*ids[first:], *ids[:first]) if ident in self.frontier]
        going = [ident for ident in order if not self.frontier[ident].waiting]
        if not going:
            raise RunError(
                "FV502",
                name=f"program of task {self.request.task}",
                value=", ".join(order),
                rule="is stuck: each of these nodes waits for a stream",
                remedy="A loop that writes a stream must emit chunks before it is done: report it to its author.",
            )
        self.turn = going[0]

    def _given(self) -> dict[str, Slot]:
        """The plain values of the request that its nodes read."""
        read = {slot for node in self.nodes for slot in node.reads.values() if slot.startswith("request.")}
        return {
            slot: request_value(self.request, slot)
            for slot in read - {one.slot for one in self.program.inputs}
        }

    def _is_ready(self, node: Node) -> bool:
        """Whether all that it reads is there, or has begun to come where it reads a stream."""
        begun = {*self.finished, *self.frontier}
        streamed = _streams(node)
        ready = all(
            writer.id in (begun if role in streamed else self.finished)
            for role, slot in node.reads.items()
            for writer in self._earlier(node)
            if slot in writer.writes.values()
        )
        return ready and all(self._could_read(reader, node) for reader in self.nodes)

    def _could_read(self, reader: Node, writer: Node) -> bool:
        """Whether all is there that `reader` reads beside a stream of `writer`: a chunk is handed on when it comes."""
        roles = _streams(reader)
        if not {reader.reads[role] for role in roles} & set(writer.writes.values()):
            return True
        return all(
            other.id in self.finished
            for role, slot in reader.reads.items()
            if role not in roles
            for other in self._earlier(reader)
            if slot in other.writes.values()
        )

    def _earlier(self, node: Node) -> Sequence[Node]:
        return self.nodes[: self.nodes.index(node)]

    def _init(self, run: NodeRun) -> Any:
        node = run.node
        tensors = node.tensors if isinstance(node, LoopNode) else ()
        inputs = {
            role: self.tensor(slot) if role in tensors else self.slots[slot]
            for role, slot in node.reads.items()
            if role not in run.streams and (slot in self.slots or role not in node.optional)
        }
        env = LoopEnv(device=self.instance.device, scope=f"{self.id}/{node.id}", owner=self.id)
        return run.loop.init(self.request, inputs, env)

    def _hand_on(self, node: Node, emission: Emission) -> Iterator[Emission]:
        """Feeds a chunk to the nodes that read it as a stream; yields it if it belongs to an artifact."""
        slot = node.writes[emission.output]
        self._feed(slot, emission.tensor)
        for artifact, artifact_slot in self.artifacts.items():
            if artifact_slot == slot:
                yield Emission(output=artifact, index=emission.index, tensor=emission.tensor)

    def _feed(self, slot: str, chunk: Tensor | None) -> None:
        for run in tuple(self.frontier.values()):
            for role in run.streams:
                if run.node.reads[role] == slot:
                    loop: Any = run.loop  # a StreamLoop, since the node has streams
                    run.state = loop.feed(self._init(run) if run.state is None else run.state, role, chunk)
                    if isinstance(run.plan, Done):
                        self._finish(run)

    def _finish(self, run: NodeRun) -> None:
        node = run.node
        outputs = run.loop.finalize(run.state).slots
        for name in node.writes.keys() - outputs.keys():
            raise misfit(
                f"output {name} of node {node.id}",
                found=f"no such output, but {', '.join(sorted(outputs)) or 'none at all'}",
                legal=", ".join(sorted(node.writes)),
                remedy="The loop's `finalize` returns what the node writes, by name: correct either.",
            )
        del self.frontier[node.id]
        self.finished += (node.id,)
        for name, slot in node.writes.items():
            self.slots[slot] = (
                self._stored(outputs[name]) if isinstance(node, ComponentNode) else outputs[name]
            )
        for slot in node.writes.values():
            self._feed(slot, None)
        self._drop_unread_slots()

    def _stored(self, value: Slot) -> Slot:
        """Component outputs are rows of many calls: stored once and passed by reference."""
        return self.scope.put(value) if isinstance(value, Tensor) else value

    def _drop_unread_slots(self) -> None:
        """Frees what no later node reads and nobody asked for."""
        needed = self.needed_slots()
        self.slots = {slot: value for slot, value in self.slots.items() if slot in needed}

    def held(self) -> frozenset[CacheRef | ValueRef]:
        """Every reference that the request still needs."""
        runs = tuple((run.state, tuple(run.chain.states.values())) for run in self.frontier.values())
        return held_refs((runs, tuple(self.slots.values())))


def _streams(node: Node) -> tuple[str, ...]:
    return node.streams if isinstance(node, LoopNode) else ()
