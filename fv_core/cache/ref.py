"""References to values that live outside a loop's state: caches that change, and large tensors that do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

CacheContent: TypeAlias = "list[Tensor | str | None]"
"""What a pool stores for one version: a component's own list of tensors and markers; [] when empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRef:
    """One version of one cache. Executing a call never changes it: the call returns the next version.

    Args:
        pool: the class of cache, which names its pool ("stream"); a scope refuses others.
        id: unique within the pool.
        version: 0 is empty; each append gives version + 1.
        owner: id of the request that holds it; the scope of another one refuses it.
    """

    pool: str
    id: str
    version: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRef:
    """A large immutable tensor, stored once and named by the hash of its bytes, shape and dtype.

    Prompt embeddings are rows of every call of a request: a reference is neither copied per step nor shipped twice.
    """

    hash: str
