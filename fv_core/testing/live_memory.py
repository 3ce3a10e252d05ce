"""Counts what a computation keeps alive, on the meta device: the truth that a card's `activation` is compared with."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BELOW: Final = 0.97
ABOVE: Final = 1.25
"""How far a prediction may lie off the counted peak: low enough to admit work, high enough to keep it from failing."""


class LivePeak(TorchDispatchMode):
    """The largest number of bytes alive at once in storages made inside, leaving out those of `module`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live: int = 0
        self.peak: int = 0
        self._known = {t.untyped_storage()._cdata for t in (*module.parameters(), *module.buffers())}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self._known:
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        self._known.add(storage._cdata)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._drop, storage._cdata, storage.nbytes())

    def _drop(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


@contextmanager
def on_meta(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Modules made and run here take no memory; attention is taken as fused.

    The meta device has no fused kernel and would count score matrices that real devices never make. What is patched
    on the yielded object is undone at the end.
    """

    def attention(query: Tensor, *others: Tensor, **how: Any) -> Tensor:
        return torch.empty_like(query)

    with monkeypatch.context() as patch, torch.no_grad(), torch.device("meta"):
        patch.setattr(F, "scaled_dot_product_attention", attention)
        yield patch
