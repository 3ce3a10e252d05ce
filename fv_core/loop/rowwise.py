"""Makes a sample's bits independent of who shares its forward: where a kernel looks at the batch, it gets one sample.

Measured with torch 2.13 on an AVX-512 CPU, fp32; the thresholds below are of that family. Three things depend on the
size of a batch: a product of few rows, or over long rows on several threads, takes another kernel; a convolution picks
its kernel by the batch; a function such as GELU leaves the vector unit for the last elements of what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

import torch
from torch import Tensor, nn

from fv_core.loop.work import ResolvedCall
from fv_core.request import Numerics

M = TypeVar("M", bound=nn.Module)

_MANY_ROWS: Final = 16
_SHORT_ROW: Final = 256
_VECTOR: Final = 32

_samples: ContextVar[int] = ContextVar("samples", default=1)


def rowwise(module: M) -> M:
    """Prepares the linear and convolutional layers of `module` for `sharing`; elsewhere they stay as they are.

    Names and storage of parameters do not change, only the layers' classes do. It holds where samples meet in these
    layers alone and functions of single elements follow on a linear layer, as in transformers; a GELU by erf is none
    of them, since oneDNN has it.
    """
    for part in module.modules():
        part.__class__ = _ROWWISE.get(type(part), type(part))
    return module


@contextmanager
def sharing(calls: Sequence[ResolvedCall]) -> Iterator[None]:
    """A forward of prepared modules for `calls`, one sample each, the first axis of all activations theirs in order.

    Under `exact` each sample comes to the bits that it has in a forward of its own.
    """
    exact = calls[0].numerics is Numerics.EXACT
    token = _samples.set(len(calls) if exact else 1)
    try:
        yield
    finally:
        _samples.reset(token)


def is_rowwise(layer: nn.Module) -> bool:
    """Whether `rowwise` has prepared the layer."""
    return type(layer) in _ROWWISE.values()


def by_sample(function: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    """`function` of each sample of a prepared layer's input by itself, where several share the forward."""
    return _one_by_one(function, batch, _among(batch))


class _Linear(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        samples = _among(rows)
        if samples == 1:
            return super().forward(rows)
        few = rows.numel() < samples * _MANY_ROWS * self.in_features
        if few or self.in_features > _SHORT_ROW:
            return _spaced(_one_by_one(super().forward, rows, samples), samples)
        return _spaced(super().forward(rows), samples)


class _Conv1d(nn.Conv1d):
    def forward(self, signals: Tensor) -> Tensor:
        return _one_by_one(super().forward, signals, _among(signals))


class _Conv2d(nn.Conv2d):
    def forward(self, images: Tensor) -> Tensor:
        return _one_by_one(super().forward, images, _among(images))


class _Conv3d(nn.Conv3d):
    def forward(self, clips: Tensor) -> Tensor:
        return _one_by_one(super().forward, clips, _among(clips))


_ROWWISE: Final[dict[type[nn.Module], type[nn.Module]]] = {
    nn.Linear: _Linear,
    nn.Conv1d: _Conv1d,
    nn.Conv2d: _Conv2d,
    nn.Conv3d: _Conv3d,
}


def _among(batch: Tensor) -> int:
    """How many samples are in it; 1 for what all of them have in common."""
    samples = _samples.get()
    return 1 if len(batch) % samples else samples


def _one_by_one(forward: Callable[[Tensor], Tensor], batch: Tensor, samples: int) -> Tensor:
    if samples == 1:
        return forward(batch)
    return torch.cat([forward(sample) for sample in batch.chunk(samples)])


def _spaced(batch: Tensor, samples: int) -> Tensor:
    """The same with gaps in memory between samples that do not fill whole vectors: a function takes each by itself."""
    size = batch[0].numel()
    if size % _VECTOR == 0 or len(batch) != samples:
        return batch
    gap = _VECTOR - size % _VECTOR
    return batch.new_empty(samples, size + gap)[:, :size].view(batch.shape).copy_(batch)
