"""Results that requests share: found by the key of a call before it is computed, and kept under it afterwards.

Shared is what a component node returns that reads nothing but what requests give (`given_nodes`), and what a call
appends to caches that its loop calls `shared`. Behind an interceptor nothing is: it must see each call that it attaches
to, and what it answers is no result of the component. Nor are calls of a group, whose forward would be another without
one of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import Tensor

from fv_core.cache import CacheContent, CacheKey, CacheRef
from fv_core.cache.key import stated
from fv_core.cache.pool import FEATURE, Entry
from fv_core.cache.stores import value_ref
from fv_core.loop import CacheMode, CacheUse, CallOutput, ComponentCall, ComponentOutput
from fv_core.loop.work import Row, Static
from fv_core.request import Numerics
from fv_core.runtime.environment import environment, environment_hash
from fv_core.runtime.instance import SEED, ModelInstance
from fv_core.runtime.scope import RequestScope
from fv_core.runtime.watch import all_finite

if TYPE_CHECKING:
    from fv_core.runtime.execution.calls import Work


def result_key(call: ComponentCall, work: Work) -> CacheKey | None:
    """The key of what the call returns; None: its result is not shared.

    Raises:
        RunError: FV505, it uses a cache that is no longer held.
    """
    appends = [use for use in call.caches if _appends(use)]
    declared = bool(appends) and all(use.shared for use in appends)
    if not (declared or work.given) or call.group is not None:
        return None
    if not work.scope.stores.reuse or work.chain.attends(work.plan):
        return None
    previous = tuple(work.scope.key_of(use.ref) for use in call.caches)
    if None in previous:
        return None
    return call_key(
        work.instance,
        call.component,
        call.op,
        static=call.static,
        rows=call.rows,
        numerics=work.numerics,
        adapters=work.adapters.key(call.component),
        previous=tuple(one for one in previous if one is not None),
    )


def call_key(
    instance: ModelInstance,
    component: str,
    op: str,
    *,
    static: Mapping[str, Static] = MappingProxyType({}),
    rows: Mapping[str, Row],
    numerics: Numerics,
    adapters: tuple[str, ...] = (),
    previous: tuple[str, ...] = (),
) -> CacheKey:
    """The key of what a call on a resident model returns. `rows` are what decides the call's own rows, or these."""
    return CacheKey(
        model=instance.digest,
        component=component,
        op=op,
        weights=f"seed {SEED}" if instance.folder is None else instance.fingerprint(),
        version=instance.version,
        adapters=adapters,
        precision=str(instance.dtype),
        device=str(instance.device),
        environment=environment_hash(environment(instance.card, instance.device)),
        numerics=numerics,
        static=stated(static),
        inputs=stated(
            {name: value_ref(row) if isinstance(row, Tensor) else row for name, row in rows.items()}
        ),
        previous=previous,
        part="output",
    )


def found(
    key: CacheKey, call: ComponentCall, scope: RequestScope
) -> tuple[CallOutput, tuple[CacheRef, ...]] | None:
    """What an equal call came to, its caches now held by `scope`; None: not all of it is here."""
    features = scope.stores.pools[FEATURE]
    output = features.find(key)
    entries = [
        scope.find(use.ref, _part(key, index)) if _appends(use) else None
        for index, use in enumerate(call.caches)
    ]
    lost = [use for use, entry in zip(call.caches, entries, strict=True) if _appends(use) and entry is None]
    if output is None or lost:
        return None
    features.hits += 1
    refs = tuple(
        use.ref if entry is None else scope.adopt(_base(use), entry)
        for use, entry in zip(call.caches, entries, strict=True)
    )
    return _output(output), refs


def stored(
    key: CacheKey | None, call: ComponentCall, computed: ComponentOutput, scope: RequestScope
) -> tuple[CacheRef, ...]:
    """The references that the call returns for its caches; with a key, its result is kept for others to find.

    Raises:
        ResourceError: FV404, a cache does not fit.
    """
    if key is not None and not all_finite(_tensors(computed)):
        key = None  # the request is about to fail by it, and others are not to
    refs = tuple(
        use.ref
        if content is None
        else scope.append(_base(use), content, None if key is None else _part(key, index))
        for index, (use, content) in enumerate(zip(call.caches, computed.caches, strict=True))
    )
    if key is not None:
        scope.stores.pools[FEATURE].keep(_content(computed.output), key)
    return refs


def _appends(use: CacheUse) -> bool:
    return use.mode is CacheMode.APPEND


def _base(use: CacheUse) -> CacheRef:
    """The version that the result follows."""
    return replace(use.ref, id=use.into, version=0) if use.into else use.ref


def _part(key: CacheKey, index: int) -> CacheKey:
    return replace(key, part=f"cache {index}")


def _content(output: CallOutput) -> CacheContent:
    """An output as a pool stores it: names, texts and notes, then its tensors."""
    told = {"tensors": [*output.tensors], "texts": {**output.texts}, "notes": [*output.notes]}
    return [json.dumps(told), *output.tensors.values()]


def _output(entry: Entry) -> CallOutput:
    told, *tensors = entry.content
    assert isinstance(told, str), "as `_content` wrote it"
    stored = json.loads(told)
    named = zip(stored["tensors"], tensors, strict=True)
    return CallOutput(
        tensors={name: tensor for name, tensor in named if isinstance(tensor, Tensor)},
        texts=stored["texts"],
        notes=tuple(stored["notes"]),
    )


def _tensors(computed: ComponentOutput) -> Iterator[Tensor]:
    yield from computed.output.tensors.values()
    for content in computed.caches:
        yield from (item for item in content or () if isinstance(item, Tensor))
