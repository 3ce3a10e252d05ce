"""What a request will take, predicted from its card and the sizes of its components: nothing is loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

from fv_core.cache.pool import CACHES
from fv_core.card import Geometry, ModelCard
from fv_core.errors import PluginError
from fv_core.plugins.reference import resolve_reference
from fv_core.program import ComponentNode, LoopNode, Node
from fv_core.request import BoundAdapter, ResolvedRequest
from fv_core.runtime.requests.usual import usual

_FULL = 4
"""Bytes of a number at full precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The prediction. All sizes in bytes.

    Args:
        request: the settled request.
        steps: steps of every node it runs.
        weights: bytes of each component it needs: parameters and buffers.
        activations: peak beside the weights, by component; those whose card does not state it are absent.
        caches: the most that its caches take of each pool, as the card states it. Part of the activations: pools bound
            how much of a device caches may take, and take nothing beside it.
        working: the same with what is held of others while a component computes, 0 where nothing is stated.
        offload: what the engine would do.
        adapters: what each adapter of the request would alter.
        adapter_bytes: of all of them on the device.
        seconds: of computing, loading apart; None until all kinds of its steps have been measured on this machine.
    """

    request: ResolvedRequest
    steps: int
    weights: Mapping[str, int]
    activations: Mapping[str, int]
    caches: Mapping[str, int]
    working: Mapping[str, int]
    offload: str
    adapters: tuple[BoundAdapter, ...] = ()
    adapter_bytes: int = 0
    seconds: float | None = None

    @property
    def working_bytes(self) -> int:
        """Peak beside weights and adapters."""
        return max(self.working.values(), default=0)

    @property
    def peak_bytes(self) -> int:
        """Peak on the device with all components resident, without what is not stated."""
        return sum(self.weights.values()) + self.adapter_bytes + self.working_bytes

    @property
    def peak_bytes_offloaded(self) -> int:
        """Peak with one component on the device at a time."""
        return max(self.weights[one] + self.working[one] for one in self.weights) + self.adapter_bytes


def component_ids(card: ModelCard, node: Node) -> tuple[str, ...]:
    """The components that a node calls."""
    if isinstance(node, ComponentNode):
        return (node.component,)
    return tuple(card.loops[node.loop].binds.values())


def plan_run(
    card: ModelCard,
    request: ResolvedRequest,
    *,
    weigh: Callable[[str], int],
    steps: int,
    dtype_bytes: int,
    offload: str,
) -> RunPlan:
    """Predicts one request.

    Args:
        weigh: bytes of a component's parameters and buffers.
        steps: steps of every node.
        dtype_bytes: bytes of one number at the run's precision.
        offload: the engine's mode, told as it is.

    Raises:
        PluginError: FV105 or FV122, the working memory of a component, or the caches, cannot be predicted.
    """
    nodes = card.programs[request.task].active(request)
    ids = tuple(dict.fromkeys(i for node in nodes for i in component_ids(card, node)))
    geometry = card.geometry(request.size, request.frames)
    activations = dict(_activations(card, ids, geometry, dtype_bytes))
    working = {
        i: max(sum(activations.get(one, 0) for one in held) for held in _held_with(card, nodes, i))
        for i in ids
    }
    return RunPlan(
        request=request,
        steps=steps,
        weights={i: weigh(i) for i in ids},
        activations=activations,
        caches=cache_bytes(card, request, dtype_bytes),
        working=working,
        offload=offload,
    )


def _held_with(card: ModelCard, nodes: Sequence[Node], component_id: str) -> Iterator[set[str]]:
    """The components whose working memory is held while this one computes: itself, and those of nodes that a stream
    joins to its own, whose caches and chunks lie side by side.
    """
    yield {component_id}
    for reader in nodes:
        streamed = {reader.reads[role] for role in reader.streams} if isinstance(reader, LoopNode) else set()
        joined = [reader, *(node for node in nodes if streamed & set(node.writes.values()))]
        held = {one for node in joined for one in component_ids(card, node)}
        if streamed and component_id in held:
            yield held


def cache_bytes(card: ModelCard, request: ResolvedRequest, dtype_bytes: int) -> dict[str, int]:
    """The most bytes that the request's caches take, by pool; empty for a card that does not state it.

    Args:
        dtype_bytes: bytes of one number at the run's precision.

    Raises:
        PluginError: FV105 or FV122, the card's `caches` is of no use.
    """
    if not card.caches:
        return {}
    owner = card.model_id
    predict = resolve_reference(card.caches, owner=owner)
    try:
        told = dict(predict(card, request, dtype_bytes))
    except Exception as error:  # whatever the code of a plugin raises
        raise _no_caches(owner, card.caches, f"raised {type(error).__name__}: {error}") from error
    if not all(name in CACHES and _is_bytes(size) for name, size in told.items()):
        raise _no_caches(owner, card.caches, f"returned {told!r}")
    return {name: int(size) for name, size in told.items()}


def check_predictions(card: ModelCard) -> None:
    """Whether the memory of the card's usual clip, and the caches of its usual requests, can be predicted.

    Raises:
        PluginError: FV105 or FV122, the first component whose `activation`, or the card's `caches`, is of no use.
    """
    clip = card.geometry(card.defaults.size, card.defaults.frames)
    for _ in _activations(card, tuple(card.components), clip, _FULL):
        pass
    for task in card.capabilities:
        cache_bytes(card, usual(card, task), _FULL)


def _activations(
    card: ModelCard, ids: tuple[str, ...], geometry: Geometry, dtype_bytes: int
) -> Iterator[tuple[str, int]]:
    for component_id in ids:
        spec = card.components[component_id]
        if spec.activation:
            owner = f"{card.model_id} component {component_id}"
            predict = resolve_reference(spec.activation, owner=owner)
            try:
                told = predict(geometry, spec.config, dtype_bytes if spec.dtype == "card" else _FULL)
            except Exception as error:  # whatever the code of a plugin raises
                raise _unpredicted(
                    owner, spec.activation, f"raised {type(error).__name__}: {error}"
                ) from error
            if not _is_bytes(told):
                raise _unpredicted(owner, spec.activation, f"returned {told!r}")
            yield component_id, int(told)


def _is_bytes(told: object) -> bool:
    return isinstance(told, Real) and not isinstance(told, bool) and 0 <= float(told) < math.inf


def _no_caches(owner: str, reference: str, rule: str) -> PluginError:
    return PluginError(
        "FV122",
        name=f"{owner}: caches",
        value=reference,
        rule=rule,
        legal=f"bytes, a number from 0 up, for any of {', '.join(CACHES)}, of (card, request, dtype_bytes)",
        remedy="Correct the function, or leave `caches` out of the card: its requests then reserve no room in pools.",
    )


def _unpredicted(owner: str, reference: str, rule: str) -> PluginError:
    return PluginError(
        "FV122",
        name=f"{owner}: activation",
        value=reference,
        rule=rule,
        legal="bytes, a number from 0 up, of (geometry, config, dtype_bytes)",
        remedy="Correct the function, or leave `activation` out of the card's component.",
    )
