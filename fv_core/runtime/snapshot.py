"""Snapshots: one request between two steps, as one safetensors file that any process with the same card can resume.

Layout: tensors by name, everything else as JSON in the file's metadata under `fv`. Tensors that alias one storage
are stored once; views are stored contiguous, so that a snapshot never drags along the tensor it is a view of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from fv_core import codec
from fv_core.cache import CacheRef, ValueRef
from fv_core.cache.ref import Restore
from fv_core.codec import JSON
from fv_core.errors import RunError
from fv_core.extend.chain import Enabled
from fv_core.loop import held_refs
from fv_core.request import Environment, ResolvedRequest
from fv_core.runtime.run import RequestRun

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """What must fit before a snapshot is resumed, and where in its program it stands.

    Args:
        format: version of the layout.
        request_id, request: the request as settled.
        card_digest, plugin, weights: what it ran on.
        environment: numeric environment it was taken in.
        node: index of the current node among those the request runs.
        extensions: ids of the enabled interceptors, in order.
        notes: what was adjusted so far.
    """

    format: int
    request_id: str
    request: ResolvedRequest
    card_digest: str
    plugin: str
    weights: str
    environment: Environment
    node: int
    extensions: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSnapshot:
    """A request between two steps. `body` is its typed JSON; `tensors` holds what JSON cannot."""

    header: SnapshotHeader
    body: dict[str, JSON]
    tensors: dict[str, Tensor] = field(repr=False)

    def save(self, path: Path) -> None:
        """Writes the file whole or not at all."""
        text = json.dumps({"header": codec.encode(self.header), "body": self.body})
        partial = path.with_name(f".{path.name}.partial")
        try:
            partial.write_bytes(save(self.tensors, metadata={"fv": text}))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> RequestSnapshot:
        """Raises:
        RunError: FV504, the file is not a snapshot of this format.
        """
        try:
            with safe_open(path, framework="pt") as file:
                parts = json.loads(file.metadata()["fv"])
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            header = codec.decode(SnapshotHeader, parts["header"])
        except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise mismatch("file", str(path), f"is not a snapshot: {error}") from error
        if header.format != FORMAT:
            raise mismatch("format", header.format, f"is not {FORMAT}")
        return cls(header=header, body=parts["body"], tensors=tensors)


class TensorLeaves:
    """Stores tensors under names, aliased ones once, and remembers which of them live on the host by choice."""

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
            self.tensors[self._names[key]] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": self._names[key], "host": value.device.type == "cpu"}

    def decode(self, kind: type, stored: JSON) -> object:
        if kind is not Tensor or not isinstance(stored, dict) or stored.get("tensor") not in self.tensors:
            raise codec.DecodeError(f"expected a stored tensor, got {stored!r}")
        tensor = self.tensors[str(stored["tensor"])]
        return tensor if stored.get("host") else tensor.to(self._device)


def take(run: RequestRun, header: SnapshotHeader) -> RequestSnapshot:
    """The snapshot of a run between two steps; the run goes on unharmed."""
    tensors: dict[str, Tensor] = {}
    leaves = TensorLeaves(tensors, run.instance.device)
    refs = held_refs((run.state, tuple(run.slots.values()), tuple(run.chain.states.values())))
    states = [[*key, codec.encode(state, leaves)] for key, state in run.chain.states.items()]
    body: dict[str, JSON] = {
        "state": None if run.state is None else codec.encode(run.state, leaves),
        "slots": codec.encode(run.slots, leaves),
        "interceptors": cast(JSON, states),
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
            run.scope.put(cast(Tensor, leaves.decode(Tensor, stored["tensor"])))
        for stored in body["caches"]:
            content = codec.decode(tuple[Tensor | str | None, ...], stored["content"], leaves)
            run.scope.restore(codec.decode(CacheRef, stored["ref"]), list(content))
        run.node = snapshot.header.node
        run.notes = snapshot.header.notes
        run.slots = dict(codec.decode(dict[str, Tensor | ValueRef | str], body["slots"], leaves))
        if body["state"] is not None:
            run.state = codec.decode(run.loop.State, body["state"], leaves)
        for ident, branch, state in body["interceptors"]:
            run.chain.states[ident, branch] = codec.decode(_state_type(run.extensions, ident), state, leaves)
    except (codec.DecodeError, KeyError, IndexError, TypeError) as error:
        raise mismatch("body", None, f"does not fit the card: {error}") from error


def mismatch(name: str, value: object, rule: str) -> RunError:
    """The error of a snapshot that cannot be resumed here."""
    return RunError(
        "FV504",
        name=f"snapshot {name}",
        value=value,
        rule=rule,
        remedy="Resume it with the card, plugin and extensions it was taken with, or run the request again.",
    )


def _state_type(extensions: tuple[Enabled, ...], ident: str) -> type:
    return next(one.interceptor.state_type() for one in extensions if one.spec.id == ident)


def _sorted(refs: frozenset[CacheRef | ValueRef]) -> list[CacheRef | ValueRef]:
    return sorted(refs, key=lambda ref: ref.hash if isinstance(ref, ValueRef) else f"{ref.id}@{ref.version}")


def _value(run: RequestRun, ref: ValueRef, leaves: TensorLeaves) -> JSON:
    return {"ref": codec.encode(ref), "tensor": leaves.encode(run.scope.get(ref))}


def _cache(run: RequestRun, ref: CacheRef, leaves: TensorLeaves) -> JSON:
    assert ref.restore is Restore.PERSIST
    return {"ref": codec.encode(ref), "content": codec.encode(run.scope.read(ref), leaves)}

