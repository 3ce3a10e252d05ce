"""Caches as values. References and keys are plain data; `cache.stores` and `cache.pool` hold the tensors."""

from fv_core.cache.key import CacheKey
from fv_core.cache.ref import CacheContent, CacheRef, ValueRef

__all__ = ["CacheContent", "CacheKey", "CacheRef", "ValueRef"]
