"""What a loop is: a pure state machine that asks for component calls and never runs a kernel itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from fv_core.cache import CacheRef, ValueRef
from fv_core.loop.work import Done, Emission, StepResult, Waiting, WorkPlan
from fv_core.request import ResolvedRequest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

S = TypeVar("S")
P = TypeVar("P")
Slot: TypeAlias = "Tensor | ValueRef | CacheRef | str | bool | int | float"
"""A value that passes between nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEnv:
    """What the runtime tells a loop at init: where tensors live, and names for what it owns.

    `scope` is unique per request and node, `owner` is the request.
    """

    device: torch.device
    scope: str
    owner: str

    def cache(self, pool: str, name: str) -> CacheRef:
        """The empty version of a cache of this node.

        Args:
            pool: "stream" (features of a causal autoencoder), "slab_kv" (windowed attention), "paged_kv" (a growing
                context) or "text_kv" (keys and values of a prompt, computed once).
            name: unique within the node.
        """
        return CacheRef(pool=pool, id=f"{self.scope}/{name}", version=0, owner=self.owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOutputs:
    """A finished loop's outputs by name."""

    slots: Mapping[str, Slot]


class Loop(Protocol[S, P]):
    """A loop class is built once per card with `(card, spec)`; everything that changes lives in its state.

    `semantics` lists the ids it implements; `LoopSpec.semantics` picks one. `Params` types `LoopSpec.params`, and
    `request_params` lists the names among them that a request may set. The driver's step is
    `update(s, predict(s, result), result)`; `predict` is separate because previews, capture, forecasting and
    training read it, and it is differentiable.
    """

    semantics: ClassVar[tuple[str, ...]]
    State: ClassVar[type]
    Params: ClassVar[type]
    request_params: ClassVar[tuple[str, ...]]

    def total(self, request: ResolvedRequest) -> int:
        """The most steps this request can take; needs no state.

        Raises:
            RequestError: the loop cannot take this request.
        """
        ...

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> S:
        """The state before the first step. Runs no component."""
        ...

    def next(self, state: S) -> WorkPlan | Waiting | Done:
        """Describes the next step. Runs no kernel and changes nothing."""
        ...

    def predict(self, state: S, result: StepResult) -> P:
        """What the outputs say (velocity and x0, a decoded chunk); guidance is combined here."""
        ...

    def update(self, state: S, prediction: P, result: StepResult) -> S:
        """The state after the step; pure."""
        ...

    def emit(self, old: S, new: S) -> tuple[Emission, ...]:
        """What the step finished, read from the new state."""
        ...

    def finalize(self, state: S) -> LoopOutputs:
        """The outputs of a loop whose `next` said Done."""
        ...


class StreamLoop(Loop[S, P], Protocol[S, P]):
    """A loop that can read streams. `init` gets no value for a read that is one."""

    def feed(self, state: S, role: str, chunk: Tensor | None) -> S:
        """The state with one more chunk of a stream; None: the stream has ended. Pure, and runs no component."""
        ...


class FlowLoop(Loop[S, P], Protocol):
    """A loop along a flow from noise to data, of which a step can be taken anywhere: what flow matching trains.

    Its predictions have a `velocity`, the time derivative along the flow.
    """

    def at(self, latent: Tensor, sigma: float, inputs: Mapping[str, Slot]) -> S:
        """The state of a latent at a noise level of its own, a single step from its end, without guidance.

        Args:
            latent: fp32, of any legal geometry.
            sigma: in (0, 1).
            inputs: as `init`; what a component wrote may be a tensor, through which a gradient flows.
        """
        ...


def held_refs(state: object) -> frozenset[CacheRef | ValueRef]:
    """Every reference in a state: what it keeps alive."""
    found: set[CacheRef | ValueRef] = set()
    rest = [state]
    while rest:  # every step of every request walks its state, so by hand and not by recursion
        value = rest.pop()
        kind: Any = type(value)
        if parts := _parts(kind):
            rest += [part for part in parts(value) if type(part) not in _PLAIN]
        elif isinstance(value, (CacheRef, ValueRef)):
            found.add(value)
    return frozenset(found)


_PLAIN: Final = frozenset({int, float, str, bool, bytes, type(None)})


@cache
def _parts(kind: type[Any]) -> Callable[[Any], Iterable[object]] | None:
    """How to get at what a value of a type holds; None: nothing that could be a reference, or it is one itself."""
    if issubclass(kind, (CacheRef, ValueRef)):
        return None
    if is_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
        return lambda value: [getattr(value, name) for name in names]
    if issubclass(kind, (tuple, list)):
        return iter
    return kind.values if issubclass(kind, Mapping) else None
