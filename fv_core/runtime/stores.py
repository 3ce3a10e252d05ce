"""What the requests of an engine hold, and what is kept of them for those to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fv_core.cache import CacheKey
from fv_core.cache.pool import CACHES, POOLS, Pool, PoolCounters
from fv_core.cache.stores import ValueStore
from fv_core.errors import ResourceError
from fv_core.memory import Budget, Claim, Tag, Ticket

if TYPE_CHECKING:
    from fv_core.runtime.scope import RequestScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What is held across all requests; all zero when none runs. `pools` tells more, and of what nobody holds too.

    Counters are equal if as much is held: what pools keep for later calls is not compared. `reserved_bytes` are of the
    device, `reserved_cache_bytes` of all pools together: room that open requests were promised, used or not.
    """

    requests: int
    values: int
    value_bytes: int
    caches: int
    cache_bytes: int
    reserved_bytes: int = 0
    reserved_cache_bytes: int = 0
    pools: Mapping[str, PoolCounters] = field(default_factory=dict, compare=False)


class Stores:
    """Values and pools, shared by all requests of an engine.

    Args:
        budgets: the most bytes of each pool.
        reuse: whether calls that equal earlier ones of any request get what those came to.
    """

    def __init__(self, budgets: Mapping[str, int], *, reuse: bool = True) -> None:
        self.budgets = budgets
        self.values = ValueStore()
        self.pools = {name: Pool(name, budgets[name]) for name in POOLS}
        self.rooms = {name: Budget(f"of {name} caches", budgets[name], never="FV404") for name in CACHES}
        self.reuse = reuse
        self.open: set[RequestScope] = set()
        self._versions: dict[str, int] = {}

    def reserve(self, owner: str, caches: Mapping[str, int], *, what: str) -> Sequence[Ticket]:
        """Promises a request the room of its caches, by pool: all of it or none.

        Raises:
            ResourceError: FV404, a pool has less for all; FV405, what is left of it is promised to others.
        """
        tickets: list[Ticket] = []
        try:
            for name, claims in _claims(caches).items():
                tickets.append(self.rooms[name].reserve(owner, claims, what=what))
        except ResourceError:
            for ticket in tickets:
                ticket.close()
            raise
        return tickets

    def check(self, caches: Mapping[str, int], *, what: str) -> None:
        """Raises:
        ResourceError: FV404, as `reserve`.
        """
        for name, claims in _claims(caches).items():
            self.rooms[name].check(claims, what=what)

    def held_bytes(self) -> int:
        """Bytes of values and caches that requests hold."""
        return self.values.bytes + sum(pool.held_bytes for pool in self.pools.values())

    def kept_bytes(self) -> int:
        """Bytes of what nobody holds, ready for later calls."""
        return sum(pool.bytes - pool.held_bytes for pool in self.pools.values())

    def renew(self, model: str, version: int) -> None:
        """Forgets what weights of other versions of a card came to."""
        if self._versions.setdefault(model, version) != version:
            self._versions[model] = version
            self.forget(lambda key: key.model == model and key.version != version)

    def forget(self, which: Callable[[CacheKey], bool]) -> None:
        """Nobody finds results with these keys any more: their model, weights or adapter is gone."""
        for pool in self.pools.values():
            pool.forget(which)

    def evict(self, wanted: int) -> int:
        """Frees at least `wanted` bytes of what nobody holds, or all of it; how many bytes that are."""
        freed = 0
        for pool in self.pools.values():
            freed += pool.evict(max(0, wanted - freed))
        return freed

    def close(self) -> None:
        """Closes every scope and keeps nothing."""
        for scope in tuple(self.open):
            scope.close()
        self.forget(lambda key: True)

    def counters(self) -> Counters:
        return Counters(
            requests=len(self.open),
            values=len(self.values),
            value_bytes=self.values.bytes,
            caches=sum(scope.caches for scope in self.open),
            cache_bytes=sum(pool.held_bytes for pool in self.pools.values()),
            reserved_cache_bytes=sum(room.reserved() for room in self.rooms.values()),
            pools={name: pool.counters() for name, pool in self.pools.items()},
        )


def _claims(caches: Mapping[str, int]) -> dict[str, list[Claim]]:
    return {name: [Claim(tag=Tag.CACHES, bytes=size)] for name, size in caches.items()}
