"""Caches as values. The references here are plain data; the stores that hold tensors are `cache.stores`."""

from fv_core.cache.ref import CacheContent, CacheRef, Restore, ValueRef

__all__ = ["CacheContent", "CacheRef", "Restore", "ValueRef"]
