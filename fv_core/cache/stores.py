"""Where referenced tensors live: values by content hash, caches by version; both counted to the byte."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from fv_core.cache.ref import CacheContent, CacheRef, ValueRef
from fv_core.errors import RunError


def value_ref(tensor: Tensor) -> ValueRef:
    """The reference of a tensor: sha256 of its contiguous bytes, with shape and dtype."""
    digest = hashlib.sha256(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return ValueRef(hash=digest.hexdigest())


class ValueStore:
    """Immutable tensors, stored once however many requests hold them."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._holders: dict[str, set[Hashable]] = {}

    def put(self, tensor: Tensor, owner: Hashable) -> ValueRef:
        """Stores `tensor` for `owner`; an equal tensor that is already here is shared."""
        ref = value_ref(tensor)
        self._tensors.setdefault(ref.hash, tensor)
        self._holders.setdefault(ref.hash, set()).add(owner)
        return ref

    def get(self, ref: ValueRef) -> Tensor:
        """Raises:
        RunError: FV505, nobody holds the value any more.
        """
        if ref.hash not in self._tensors:
            raise stale(f"value {ref.hash[:12]}", None)
        return self._tensors[ref.hash]

    def release(self, ref: ValueRef, owner: Hashable) -> None:
        """`owner` lets go; the last one to do so frees the tensor."""
        holders = self._holders.get(ref.hash, set())
        holders.discard(owner)
        if not holders:
            self._holders.pop(ref.hash, None)
            self._tensors.pop(ref.hash, None)

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def bytes(self) -> int:
        return _bytes(self._tensors.values())


class CachePool:
    """Versioned contents of a request's caches; each version has one holder, the state that carries its reference.

    That is why appending may use the old version up: a decoder replaces its features one by one in the list it is
    given, so that old and new features (gigabytes at 480p) never exist side by side.
    """

    def __init__(self) -> None:
        self._contents: dict[tuple[str, int], CacheContent] = {}

    def read(self, ref: CacheRef) -> CacheContent:
        """The contents, still held; [] for version 0.

        Raises:
            RunError: FV505, the version is not held any more.
        """
        if ref.version == 0:
            return []
        if (ref.id, ref.version) not in self._contents:
            raise stale(f"cache {ref.id}", f"version {ref.version}")
        return list(self._contents[ref.id, ref.version])

    def take(self, ref: CacheRef) -> CacheContent:
        """The contents, to be used up by an append; the version is gone from here on. Raises as `read`."""
        content = self.read(ref)
        self.release(ref)
        return content

    def append(self, ref: CacheRef, content: CacheContent) -> CacheRef:
        """Stores `content` as the version after `ref`."""
        following = replace(ref, version=ref.version + 1)
        self.restore(following, content)
        return following

    def restore(self, ref: CacheRef, content: CacheContent) -> None:
        """Puts a version (back) in."""
        self._contents[ref.id, ref.version] = content

    def release(self, ref: CacheRef) -> None:
        self._contents.pop((ref.id, ref.version), None)

    def __len__(self) -> int:
        return len(self._contents)

    @property
    def bytes(self) -> int:
        return _bytes(
            item for content in self._contents.values() for item in content if isinstance(item, Tensor)
        )


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def stale(name: str, value: object, rule: str = "is no longer held") -> RunError:
    """FV505: a reference that names nothing of its user's."""
    return RunError(
        "FV505",
        name=name,
        value=value,
        rule=rule,
        remedy="Keep the reference that the last step returned; a released one cannot be read again.",
    )
