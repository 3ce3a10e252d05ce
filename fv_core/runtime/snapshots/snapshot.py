"""Snapshots: one request between two steps, as one safetensors file that any process with the same card can resume.

Layout: tensors by name, everything else as JSON in the file's metadata under `fv`, a digest of both under `sha256`.
Equal views of one storage are stored once; a view is stored alone, never with the tensor it is a view of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fv_core import codec
from fv_core.cache import CacheRef, ValueRef
from fv_core.cache.stores import value_ref
from fv_core.codec import JSON
from fv_core.errors import RunError
from fv_core.extend.chain import Enabled
from fv_core.media.atomic import write_files
from fv_core.request import Environment, ResolvedRequest
from fv_core.runtime.run import NodeRun, RequestRun

FORMAT = 2

_SLOTS: Any = dict[str, Tensor | ValueRef | CacheRef | str | bool | int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """What must fit before a snapshot is resumed, and where in its program it stands.

    Args:
        request_id, request: the request as settled.
        card_digest, plugin, weights, dtype: what it ran on.
        environment: numeric environment it was taken in.
        finished: ids of the nodes that are done, in the order they were.
        turn: id of the node that steps next; "" when none is left.
        extensions: the enabled interceptors with their parameters, in order.
        notes: what was adjusted so far.
    """

    request_id: str
    request: ResolvedRequest
    card_digest: str
    plugin: str
    weights: str
    dtype: str
    environment: Environment
    finished: tuple[str, ...]
    turn: str
    extensions: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSnapshot:
    """A request between two steps. `body` is its typed JSON; `tensors` holds what JSON cannot."""

    header: SnapshotHeader
    body: dict[str, JSON]
    tensors: dict[str, Tensor] = field(repr=False)

    def save(self, path: str | Path) -> None:
        """Writes the file whole or not at all.

        Raises:
            OSError: the disk is full, the folder is missing or not writable, ...
        """
        path = Path(path)
        text = json.dumps({"header": codec.encode(self.header), "body": self.body})
        metadata = {"format": str(FORMAT), "fv": text, "sha256": _digest(text, self.tensors)}
        write_files({path: save(self.tensors, metadata=metadata)}, force=True)

    @classmethod
    def load(cls, path: str | Path) -> RequestSnapshot:
        """Raises:
        RunError: FV504, the file is not a whole snapshot of this format.
        """
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata()
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            if metadata["format"] != str(FORMAT):
                raise mismatch("format", metadata["format"], f"is not {FORMAT}")
            if metadata["sha256"] != _digest(metadata["fv"], tensors):
                raise mismatch("file", str(path), "is damaged: its content is not what was written")
            parts = json.loads(metadata["fv"])
            header, body = codec.decode(SnapshotHeader, parts["header"]), parts["body"]
            if not isinstance(body, dict):
                raise codec.DecodeError(f"expected an object, got {body!r}")
        # RecursionError: brackets nested without end
        except (OSError, KeyError, TypeError, ValueError, RecursionError, SafetensorError) as error:
            raise mismatch("file", str(path), f"is not a snapshot: {_brief(error)}") from error
        return cls(header=header, body=body, tensors=tensors)


class TensorLeaves:
    """Stores tensors under names, aliased ones once, and remembers how they lay in memory and on which side.

    The order of their dimensions in memory is kept because kernels, and so bits, may depend on it.
    """

    names: Mapping[str, type] = {"Tensor": Tensor}

    def __init__(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        self.tensors = tensors
        self._device = device
        self._names: dict[tuple[object, ...], str] = {}

    def encode(self, value: object) -> JSON:
        if not isinstance(value, Tensor):
            raise TypeError(f"{type(value).__name__} cannot be stored in a snapshot")
        key = (value.data_ptr(), tuple(value.shape), value.stride(), value.dtype, value.device)
        if key not in self._names:
            self._names[key] = f"t{len(self.tensors)}"
            dense = value.detach().permute(_memory_order(value)).to("cpu", copy=True).contiguous()
            self.tensors[self._names[key]] = dense
        order: list[JSON] = [*_memory_order(value)]
        return {"tensor": self._names[key], "order": order, "host": value.device.type == "cpu"}

    def decode(self, kind: type, stored: JSON) -> object:
        if kind is not Tensor or not isinstance(stored, dict) or stored.get("tensor") not in self.tensors:
            raise codec.DecodeError(f"expected a stored tensor, got {stored!r}")
        tensor, order = self.tensors[str(stored["tensor"])], stored.get("order")
        if not isinstance(order, list) or sorted(map(str, order)) != sorted(map(str, range(tensor.dim()))):
            raise codec.DecodeError(f"expected an order of {tensor.dim()} dimensions, got {order!r}")
        tensor = tensor.permute([order.index(dimension) for dimension in range(tensor.dim())])
        return tensor if stored.get("host") else tensor.to(self._device)


def take(run: RequestRun, header: SnapshotHeader) -> RequestSnapshot:
    """The snapshot of a run between two steps; the run goes on unharmed.

    Raises:
        RunError: FV501 the run is not finite, FV504 an interceptor's state cannot be stored.
    """
    run.check_finite()
    tensors: dict[str, Tensor] = {}
    leaves = TensorLeaves(tensors, run.instance.device)
    refs = run.held()
    body: dict[str, JSON] = {
        "frontier": {ident: _node(one, leaves) for ident, one in run.frontier.items()},
        "slots": codec.encode(run.slots, leaves),
        "values": [_value(run, ref, leaves) for ref in _sorted(refs) if isinstance(ref, ValueRef)],
        "caches": [_cache(run, ref, leaves) for ref in _sorted(refs) if isinstance(ref, CacheRef)],
    }
    return RequestSnapshot(header=header, body=body, tensors=tensors)


def restore(run: RequestRun, snapshot: RequestSnapshot) -> None:
    """Puts a fresh run where the snapshot was taken.

    Raises:
        RunError: FV504, the body does not fit the card's loops.
    """
    leaves = TensorLeaves(snapshot.tensors, run.instance.device)
    body = cast(dict[str, Any], snapshot.body)
    try:
        for stored in body["values"]:
            ref = run.scope.put(cast(Tensor, leaves.decode(Tensor, stored["tensor"])))
            if ref != codec.decode(ValueRef, stored["ref"]):
                raise codec.DecodeError(f"value {stored['ref']} has another content")
        for stored in body["caches"]:
            content = codec.decode(tuple[Tensor | str | None, ...], stored["content"], leaves)
            run.scope.restore(codec.decode(CacheRef, stored["ref"]), list(content))
        run.notes = snapshot.header.notes
        run.slots = dict(codec.decode(_SLOTS, body["slots"], leaves))
        _restore_frontier(run, snapshot.header, body["frontier"], leaves)
        _check_slots(run)
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise mismatch("body", None, f"does not fit the card: {_brief(error)}") from error


def _check_slots(run: RequestRun) -> None:
    """A run between two steps holds what its finished nodes wrote and anybody still needs, and nothing of its own."""
    written = {slot for node in run.nodes if node.id in run.finished for slot in node.writes.values()}
    brought = {one.slot for one in run.program.inputs}
    missing = (written | run.given.keys()) & run.needed_slots() - run.slots.keys()
    if odd := sorted(run.slots.keys() - written - run.given.keys() - brought) + sorted(missing):
        raise codec.DecodeError(f"slots that should not be there, or are missing: {', '.join(odd)}")
    for slot, value in run.slots.items():
        if slot in run.given and value != run.given[slot]:
            raise codec.DecodeError(f"slot {slot} holds {value!r}")
        if (
            slot in run.returned_slots() - {run.artifacts.get("text")}
            and slot in written
            and isinstance(value, str)
        ):
            raise codec.DecodeError(f"slot {slot} holds {value!r}")


def _brief(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def _restore_frontier(
    run: RequestRun, header: SnapshotHeader, stored: dict[str, Any], leaves: TensorLeaves
) -> None:
    left = {node.id for node in run.nodes} - set(header.finished)
    run.frontier.clear()
    run.finished = tuple(header.finished)
    run.open_nodes()
    if not isinstance(stored, dict) or not all(isinstance(one, dict) for one in stored.values()):
        raise codec.DecodeError(f"the frontier is {stored!r}")
    if run.frontier.keys() != stored.keys() or not left >= stored.keys():
        raise codec.DecodeError(f"the program stands at {sorted(run.frontier)}, not at {sorted(stored)}")
    for ident, one in stored.items():
        node = run.frontier[ident]
        if one["state"] is not None:
            node.state = codec.decode(node.loop.State, one["state"], leaves)
        for name, branch, state in one["interceptors"]:
            node.chain.states[name, branch] = codec.decode(_state_type(run.extensions, name), state, leaves)
    if stored and header.turn not in stored:
        raise codec.DecodeError(f"node {header.turn} is not one that could go on")
    run.turn = header.turn


def mismatch(name: str, value: object, rule: str) -> RunError:
    """The error of a snapshot that cannot be resumed here."""
    return RunError(
        "FV504",
        name=f"snapshot {name}",
        value=value,
        rule=rule,
        remedy="Resume it with the card, plugin and extensions it was taken with, or run the request again.",
    )


def _node(run: NodeRun, leaves: TensorLeaves) -> JSON:
    states = [[*key, _interceptor_state(key[0], state, leaves)] for key, state in run.chain.states.items()]
    state = None if run.state is None else codec.encode(run.state, leaves)
    return {"state": state, "interceptors": cast(JSON, states)}


def _state_type(extensions: tuple[Enabled, ...], ident: str) -> type:
    return {one.spec.id: one.interceptor for one in extensions}[ident].state_type()


def _interceptor_state(ident: str, state: object, leaves: TensorLeaves) -> JSON:
    try:
        return codec.encode(state, leaves)
    except TypeError as error:
        raise mismatch(f"state of interceptor {ident}", None, f"cannot be stored: {error}") from error


def _memory_order(tensor: Tensor) -> list[int]:
    """Its dimensions from the slowest to the fastest; those of a contiguous tensor in order."""
    strides = tensor.stride()
    return sorted(range(len(strides)), key=lambda dimension: -strides[dimension])


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    whole = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        whole.update(f"{name}{value_ref(tensors[name]).hash}".encode())
    return whole.hexdigest()


def _sorted(refs: frozenset[CacheRef | ValueRef]) -> list[CacheRef | ValueRef]:
    return sorted(refs, key=lambda ref: ref.hash if isinstance(ref, ValueRef) else f"{ref.id}@{ref.version}")


def _value(run: RequestRun, ref: ValueRef, leaves: TensorLeaves) -> JSON:
    return {"ref": codec.encode(ref), "tensor": leaves.encode(run.scope.get(ref))}


def _cache(run: RequestRun, ref: CacheRef, leaves: TensorLeaves) -> JSON:
    return {"ref": codec.encode(ref), "content": codec.encode(run.scope.read(ref), leaves)}
