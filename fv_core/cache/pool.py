"""A pool: the contents of one class of caches within a hard budget of bytes.

An entry is one version of one cache. Whoever needs it holds it, and holds are counted. One without a key is gone with
its last hold; one with a key is shared, and stays, least recently used first to go, until its room is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from torch import Tensor

from fv_core.cache.key import CacheKey
from fv_core.cache.ref import CacheContent
from fv_core.errors import ResourceError

CACHES: Final = ("stream", "slab_kv", "paged_kv", "text_kv")
"""Classes of caches; see `LoopEnv.cache`."""

FEATURE: Final = "feature"
"""The pool of what calls returned, beside what they appended to caches."""

POOLS: Final = (*CACHES, FEATURE)

_Storage: TypeAlias = tuple[object, ...]


@dataclass(eq=False, slots=True)
class Entry:
    """The contents of one version, never changed; `held` counts who needs them, `lies_in` what they keep alive."""

    content: tuple[Tensor | str | None, ...]
    key: CacheKey | None
    lies_in: Mapping[_Storage, int]
    held: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounters:
    """What a pool has, in entries and bytes, and how often it was asked.

    Args:
        held_bytes: of them, what requests hold.
        idle_entries, idle_bytes: of them, what nobody holds: kept for later calls, given up when room is needed.
        hits, misses: results that were found, and shared ones that had to be computed.
    """

    entries: int
    bytes: int
    held_bytes: int
    idle_entries: int
    idle_bytes: int
    hits: int
    misses: int
    budget: int


@dataclass(slots=True)
class _Room:
    """A storage that entries lie in: its size, how many lie in it, and how many of those are held."""

    size: int
    entries: int = 0
    held: int = 0


class Pool:
    """Counts every storage once, however many entries share it: versions of a cache often have most in common."""

    def __init__(self, name: str, budget: int) -> None:
        self.name = name
        self.budget = budget
        self.hits = 0
        self.misses = 0
        self.bytes = 0
        self.held_bytes = 0
        self._entries: dict[Entry, None] = {}
        self._shared: dict[CacheKey, Entry] = {}
        self._idle: dict[Entry, None] = {}  # the one unused for longest first
        self._rooms: dict[_Storage, _Room] = {}

    def put(self, content: CacheContent, key: CacheKey | None = None) -> Entry:
        """Stores a version for who calls, who holds it from here on; with a key, that who finds it may share it.

        Raises:
            ResourceError: FV404, it does not fit beside what others hold.
        """
        if key is not None and key in self._shared:
            entry = self._shared[key]
            self.hold(entry)
            return entry
        self.misses += key is not None
        entry = Entry(tuple(content), key, _storages(content))
        wanted = sum(size for storage, size in entry.lies_in.items() if not self._is_held(storage))
        if self.held_bytes + wanted > self.budget:
            raise self._full(f"{wanted} bytes more")
        self._enter(entry)
        self.hold(entry)
        self._fit(self.budget)
        return entry

    def keep(self, content: CacheContent, key: CacheKey) -> None:
        """Stores a result that nobody holds, unless it does not fit."""
        try:
            self.release(self.put(content, key))
        except ResourceError:
            return  # it is computed again when it is asked for again

    def find(self, key: CacheKey) -> Entry | None:
        """The contents under `key`, which are now the most recently used; None: they are not here."""
        entry = self._shared.get(key)
        if entry is not None and entry in self._idle:
            del self._idle[entry]
            self._idle[entry] = None
        return entry

    def hold(self, entry: Entry) -> None:
        """One hold more on an entry of this pool."""
        entry.held += 1
        if entry.held == 1:
            self._idle.pop(entry, None)
            for storage, size in entry.lies_in.items():
                room = self._rooms[storage]
                room.held += 1
                self.held_bytes += size if room.held == 1 else 0

    def release(self, entry: Entry) -> None:
        """One hold less; the last one leaves a shared entry idle and drops any other."""
        assert entry.held > 0, "released more often than held"
        entry.held -= 1
        if entry.held:
            return
        for storage, size in entry.lies_in.items():
            room = self._rooms[storage]
            room.held -= 1
            self.held_bytes -= 0 if room.held else size
        if entry.key is None:
            self._drop(entry)
        else:
            self._idle[entry] = None

    def take(self, entry: Entry) -> CacheContent:
        """The contents, for who holds `entry` and lets go of it with this: to change as they like.

        Of a sole holder of what is not shared the entry itself is used up, so that old and new contents never exist
        side by side. Others go on to see what they saw: the list is a copy, and tensors are never changed in place.
        """
        content = list(entry.content)
        self.release(entry)
        return content

    def forget(self, which: Callable[[CacheKey], bool]) -> None:
        """Nobody finds the shared entries of these keys any more; those that are held live as long as that."""
        for key in [key for key in self._shared if which(key)]:
            entry = self._shared.pop(key)
            entry.key = None
            if not entry.held:
                self._drop(entry)

    def evict(self, wanted: int) -> int:
        """Gives up idle entries until `wanted` bytes are freed or none is left; how many bytes that freed."""
        before = self.bytes
        self._fit(before - wanted)
        return before - self.bytes

    def counters(self) -> PoolCounters:
        return PoolCounters(
            entries=len(self._entries),
            bytes=self.bytes,
            held_bytes=self.held_bytes,
            idle_entries=len(self._idle),
            idle_bytes=self.bytes - self.held_bytes,
            hits=self.hits,
            misses=self.misses,
            budget=self.budget,
        )

    def _fit(self, most: int) -> None:
        while self.bytes > most and self._idle:
            self._drop(next(iter(self._idle)))

    def _enter(self, entry: Entry) -> None:
        self._entries[entry] = None
        if entry.key is not None:
            self._shared[entry.key] = entry
        for storage, size in entry.lies_in.items():
            room = self._rooms.setdefault(storage, _Room(size))
            room.entries += 1
            self.bytes += size if room.entries == 1 else 0

    def _drop(self, entry: Entry) -> None:
        del self._entries[entry]
        self._idle.pop(entry, None)
        if entry.key is not None:
            del self._shared[entry.key]
        for storage, size in entry.lies_in.items():
            room = self._rooms[storage]
            room.entries -= 1
            if not room.entries:
                del self._rooms[storage]
                self.bytes -= size

    def _is_held(self, storage: _Storage) -> bool:
        return storage in self._rooms and self._rooms[storage].held > 0

    def _full(self, wanted: str) -> ResourceError:
        return ResourceError(
            "FV404",
            name=f"{self.name} caches",
            value=wanted,
            rule=f"do not fit: {self.budget - self.held_bytes} bytes of {self.budget} are not held",
            remedy="Run fewer requests at a time, a smaller one, or raise `cache_bytes` of the engine. What a card "
            "states as its `caches` is reserved, so that its requests wait instead.",
        )


def _storages(content: CacheContent) -> dict[_Storage, int]:
    """What contents lie in, each once, with its size in bytes: a view keeps alive all that it is a view of."""
    sizes: dict[_Storage, int] = {}
    for item in content:
        if isinstance(item, Tensor):
            storage = item.untyped_storage()
            sizes[storage.device, storage.data_ptr()] = storage.nbytes()
        elif item is not None:
            sizes["text", item] = len(item.encode())
    return sizes
