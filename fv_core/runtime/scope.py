"""What one request holds, given back in one place however the request ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from torch import Tensor

from fv_core.cache import CacheContent, CacheKey, CacheRef, ValueRef
from fv_core.cache.pool import CACHES, Entry, Pool
from fv_core.cache.stores import stale
from fv_core.errors import RunError
from fv_core.memory import Ticket
from fv_core.runtime.stores import Stores

_EMPTY: Final = ""


class RequestScope:
    """Owns every reference of one request. Close it in `finally`; closing twice is the same as once.

    A closed scope takes nothing more: who still steps the request gets FV509 rather than memory that nobody frees.
    """

    def __init__(self, owner: str, stores: Stores) -> None:
        self.owner = owner
        self.stores = stores
        # Its own: two jobs that resume one request have equal references.
        self._caches: dict[CacheRef, Entry] = {}
        self._values: set[ValueRef] = set()
        self._tickets: tuple[Ticket, ...] = ()
        self.closed = False
        stores.open.add(self)

    def own(self, tickets: Sequence[Ticket]) -> None:
        """Takes over what was reserved for the request."""
        self._tickets = tuple(tickets)

    def put(self, tensor: Tensor) -> ValueRef:
        """Stores a large immutable tensor for this request."""
        self._require_open()
        ref = self.stores.values.put(tensor, self)
        self._values.add(ref)
        return ref

    def get(self, ref: ValueRef) -> Tensor:
        return self.stores.values.get(ref)

    def read(self, ref: CacheRef) -> CacheContent:
        """The contents, still held; [] for version 0. The list is the caller's to change.

        Raises:
            RunError: FV505, the version is not held any more.
        """
        self._pool_of(ref)
        return list(self._entry(ref).content) if ref.version else []

    def take(self, ref: CacheRef) -> CacheContent:
        """The contents, to be used up by an append: this request holds the version no more (`Pool.take`).

        Raises as `read`.
        """
        pool = self._pool_of(ref)
        if not ref.version:
            return []
        entry = self._entry(ref)
        del self._caches[ref]
        return pool.take(entry)

    def append(self, ref: CacheRef, content: CacheContent, key: CacheKey | None = None) -> CacheRef:
        """Stores the version after `ref`, which has been used up; with a key, for others to share.

        Raises:
            ResourceError: FV404, it does not fit.
        """
        self._require_open()
        pool = self._pool_of(ref)
        self.release(ref)
        return self._hold(following(ref), pool.put(content, key))

    def find(self, ref: CacheRef, key: CacheKey) -> Entry | None:
        """The shared contents under `key` in the pool of `ref`; raises as `read` for a pool that is none."""
        return self._pool_of(ref).find(key)

    def adopt(self, ref: CacheRef, entry: Entry) -> CacheRef:
        """Holds shared contents that were found as the version after `ref`, which has been used up."""
        self._require_open()
        self._pool_of(ref).hold(entry)
        self.release(ref)
        return self._hold(following(ref), entry)

    def restore(self, ref: CacheRef, content: CacheContent) -> None:
        """Puts back a cache from a snapshot: for this request alone, as what is in a file is not known by its key."""
        self._require_open()
        self._hold(ref, self._pool_of(ref).put(content))

    def key_of(self, ref: CacheRef) -> str | None:
        """The digest of the key that a version has its content by, "" for an empty one; None: it is not shared."""
        if not ref.version:
            return _EMPTY
        key = self._entry(ref).key
        return None if key is None else key.digest()

    def release(self, ref: CacheRef) -> None:
        """Gives one version back; nothing to do for one that is not held."""
        if ref in self._caches:
            self._pool_of(ref).release(self._caches.pop(ref))

    def keep(self, refs: frozenset[CacheRef | ValueRef]) -> None:
        """Gives back everything but `refs`."""
        for value in self._values - refs:
            self.stores.values.release(value, self)
        self._values &= refs
        for ref in self._caches.keys() - refs:
            self.release(ref)

    def close(self) -> None:
        self.closed = True
        self.keep(frozenset())
        self.stores.open.discard(self)
        for ticket in self._tickets:
            ticket.close()

    @property
    def caches(self) -> int:
        """How many versions it holds."""
        return len(self._caches)

    def _hold(self, ref: CacheRef, entry: Entry) -> CacheRef:
        self.release(ref)
        self._caches[ref] = entry
        return ref

    def _entry(self, ref: CacheRef) -> Entry:
        if ref not in self._caches:
            raise stale(f"cache {ref.id}", f"version {ref.version}")
        return self._caches[ref]

    def _require_open(self) -> None:
        """Raises:
        RunError: FV509, the request has given everything back.
        """
        if self.closed:
            raise over(self.owner, "was closed")

    def _pool_of(self, ref: CacheRef) -> Pool:
        """Raises:
        RunError: FV505, the reference is another request's or of no pool that there is.
        """
        if ref.owner != self.owner:
            raise stale(f"cache {ref.id}", ref.owner, f"belongs to another request than {self.owner}")
        if ref.pool not in CACHES:
            raise stale(f"cache {ref.id}", ref.pool, f"is of none of the pools {', '.join(CACHES)}")
        return self.stores.pools[ref.pool]


def following(ref: CacheRef) -> CacheRef:
    """The reference of the version after `ref`."""
    return replace(ref, version=ref.version + 1)


def over(owner: str, rule: str) -> RunError:
    """FV509: what was asked of a job does not go with where it is."""
    return RunError(
        "FV509",
        name=f"job {owner}",
        rule=rule,
        remedy="Step a job while it is not `done`, take its clip when it is, and close it last.",
    )
