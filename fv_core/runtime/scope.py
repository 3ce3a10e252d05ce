"""What one request holds, given back in one place however the request ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from fv_core.cache import CacheContent, CacheRef, ValueRef
from fv_core.cache.stores import CachePool, ValueStore, stale
from fv_core.errors import RunError
from fv_core.memory import Ticket

POOLS: Final = ("stream", "slab_kv", "paged_kv", "text_kv")
"""Classes of caches; see `LoopEnv.cache`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What is held across all requests; all zero when none runs."""

    requests: int
    values: int
    value_bytes: int
    caches: int
    cache_bytes: int
    reserved_bytes: int = 0


class Stores:
    """What the requests of an engine hold: values, which they share, and the caches of each."""

    def __init__(self) -> None:
        self.values = ValueStore()
        self.open: dict[RequestScope, CachePool] = {}

    def held_bytes(self) -> int:
        """Bytes of values and caches."""
        counters = self.counters()
        return counters.value_bytes + counters.cache_bytes

    def counters(self) -> Counters:
        return Counters(
            requests=len(self.open),
            values=len(self.values),
            value_bytes=self.values.bytes,
            caches=sum(map(len, self.open.values())),
            cache_bytes=sum(pool.bytes for pool in self.open.values()),
        )


class RequestScope:
    """Owns every reference of one request. Close it in `finally`; closing twice is the same as once.

    A closed scope takes nothing more: who still steps the request gets FV509 rather than memory that nobody frees.
    """

    def __init__(self, owner: str, stores: Stores) -> None:
        self.owner = owner
        self._stores = stores
        self._caches = CachePool()  # its own: two jobs that resume one request have equal references
        self._held: set[CacheRef | ValueRef] = set()
        self._ticket: Ticket | None = None
        self.closed = False
        stores.open[self] = self._caches

    def own(self, ticket: Ticket) -> None:
        """Takes over what was reserved for the request."""
        self._ticket = ticket

    def put(self, tensor: Tensor) -> ValueRef:
        """Stores a large immutable tensor for this request."""
        self._require_open()
        ref = self._stores.values.put(tensor, self)
        self._held.add(ref)
        return ref

    def get(self, ref: ValueRef) -> Tensor:
        return self._stores.values.get(ref)

    def read(self, ref: CacheRef) -> CacheContent:
        return self._pool_of(ref).read(ref)

    def take(self, ref: CacheRef) -> CacheContent:
        """The contents of a cache that the call will use up; see `CachePool.take`."""
        content = self._pool_of(ref).take(ref)
        self._held.discard(ref)
        return content

    def append(self, ref: CacheRef, content: CacheContent) -> CacheRef:
        self._require_open()
        following = self._pool_of(ref).append(ref, content)
        self._held.add(following)
        return following

    def restore(self, ref: CacheRef, content: CacheContent) -> None:
        """Puts back a cache from a snapshot."""
        self._require_open()
        self._pool_of(ref).restore(ref, content)
        self._held.add(ref)

    def keep(self, refs: frozenset[CacheRef | ValueRef]) -> None:
        """Gives back everything but `refs`."""
        for ref in self._held - refs:
            self._release(ref)
        self._held &= refs

    def close(self) -> None:
        self.closed = True
        self.keep(frozenset())
        self._stores.open.pop(self, None)
        if self._ticket is not None:
            self._ticket.close()

    def _require_open(self) -> None:
        """Raises:
        RunError: FV509, the request has given everything back.
        """
        if self.closed:
            raise over(self.owner, "was closed")

    def _pool_of(self, ref: CacheRef) -> CachePool:
        """Raises:
        RunError: FV505, the reference is another request's or of no pool that there is.
        """
        if ref.owner != self.owner:
            raise stale(f"cache {ref.id}", ref.owner, f"belongs to another request than {self.owner}")
        if ref.pool not in POOLS:
            raise stale(f"cache {ref.id}", ref.pool, f"is of none of the pools {', '.join(POOLS)}")
        return self._caches

    def _release(self, ref: CacheRef | ValueRef) -> None:
        if isinstance(ref, ValueRef):
            self._stores.values.release(ref, self)
        else:
            self._pool_of(ref).release(ref)


def over(owner: str, rule: str) -> RunError:
    """FV509: what was asked of a job does not go with where it is."""
    return RunError(
        "FV509",
        name=f"job {owner}",
        rule=rule,
        remedy="Step a job while it is not `done`, take its clip when it is, and close it last.",
    )
