"""The adapters of one request on one model: what they bind, what they add to keys, and how a forward gets them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from fv_core.adapters.binding import Binding, Target, bind
from fv_core.adapters.faults import unbound
from fv_core.adapters.files import find
from fv_core.adapters.low_rank import Part, applied
from fv_core.adapters.pool import AdapterPool, PoolKey
from fv_core.adapters.settle import takers
from fv_core.memory import Claim, Tag, total
from fv_core.request import BoundAdapter, Numerics, ResolvedRequest, UsedAdapter
from fv_core.runtime.instance import ModelInstance

StackKey: TypeAlias = tuple[str, ...]
"""sha256 and scale of each adapter, in order: equal keys alter a component equally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    used: UsedAdapter
    binding: Binding


class AdapterStack:
    """In the request's order, which decides bits. Without a pool it is empty."""

    def __init__(
        self, bound: Sequence[_Bound] = (), pool: AdapterPool | None = None, *, model: str = ""
    ) -> None:
        self._bound = tuple(bound)
        self._pool = pool
        self._model = model

    def key(self, component: str) -> StackKey:
        """Of the adapters that alter the component; () where none does."""
        return tuple(f"{one.used.sha256}:{one.used.scale!r}" for one in self._altering(component))

    def bytes(self) -> int:
        """Of all factors on the device."""
        return total(self.claims())

    def told(self) -> tuple[BoundAdapter, ...]:
        """What each adapter came to."""
        return tuple(
            BoundAdapter(
                path=one.used.path,
                sha256=one.used.sha256,
                scale=one.used.scale,
                layers=one.binding.counts(),
                alpha_stated=one.binding.alpha_stated,
            )
            for one in self._bound
        )

    def claims(self) -> tuple[Claim, ...]:
        """What the factors take on the device, loaded or not; requests with one adapter share it."""
        return tuple(
            Claim(tag=Tag.WEIGHTS, bytes=one.binding.bytes(component), key=self._pool_key(one, component))
            for one in self._bound
            for component in one.binding.counts()
        )

    @contextmanager
    def applied(self, component: str, instance: ModelInstance, numerics: Numerics) -> Iterator[None]:
        """Alters the component for the time of the block.

        Raises:
            RequestError: FV322, a file that has to be read again has changed or is gone.
        """
        if not self.key(component):
            yield
            return
        module = instance.component(component).module
        parts = self._parts(component, instance)
        with applied(module, parts, invariant=numerics is Numerics.EXACT):
            yield

    def _parts(self, component: str, instance: ModelInstance) -> Mapping[str, Sequence[Part]]:
        assert self._pool is not None
        module, began = instance.component(component).module, time.perf_counter()
        parts: dict[str, list[Part]] = {}
        for one in self._altering(component):
            key = self._pool_key(one, component)
            for layer, factors in self._pool.get(key, one.binding, module).items():
                parts.setdefault(layer, []).append((factors, one.used.scale))
        instance.loading_s += time.perf_counter() - began
        return parts

    def _pool_key(self, one: _Bound, component: str) -> PoolKey:
        return PoolKey(self._model, component, one.used.sha256)

    def _altering(self, component: str) -> list[_Bound]:
        return [
            one for one in self._bound if any(layer.component == component for layer in one.binding.layers)
        ]


def bind_adapters(
    request: ResolvedRequest, instance: ModelInstance, running: Collection[str], pool: AdapterPool
) -> AdapterStack:
    """The stack of a request; headers are read and no weight is.

    Args:
        running: the components that the request runs.

    Raises:
        RequestError: FV322 a file is no LoRA, FV323 it does not bind, or binds a component that the request does not
            run.
        ResourceError: FV401, a file is larger than the pool.
    """
    if not request.adapters:
        return AdapterStack()
    targets = {name: _target(instance, name) for name in takers(instance.card)}
    bound = [_Bound(used=used, binding=bind(find(used.path), targets)) for used in request.adapters]
    together = 0
    for one in bound:
        together += one.binding.bytes()  # a forward needs all of them at once
        pool.check(one.used.path, together)
        if idle := sorted(one.binding.counts().keys() - set(running)):
            raise unbound(
                one.used.path,
                f"alters {', '.join(idle)}, which task {request.task} does not run",
                "Leave it out, or use an adapter of what runs.",
            )
    return AdapterStack(bound, pool, model=instance.card.model_id)


def _target(instance: ModelInstance, component: str) -> Target:
    names = instance.card.components[component].adapters
    assert names is not None, f"{component} takes no adapters"
    return Target(module=instance.architecture(component), names=names)
