"""How far sharing a forward moves what a component computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fv_core.loop import CallOutput, Component, ResolvedCall
from fv_core.request import Numerics

SIZES = (2, 3, 4, 8, 16)


def moved_by_sharing(
    component: Component, op: str, calls: Sequence[ResolvedCall], numerics: Numerics
) -> float:
    """The largest difference between outputs of calls alone and in forwards of 2, 3, 4, 8 and 16.

    Every size is run in order and backwards, so each call meets other neighbours in another slot.

    Args:
        calls: at least 16, without caches.

    Raises:
        AssertionError: calls may not share a forward, or a shared one has outputs of another shape or dtype.
    """
    calls = [replace(call, numerics=numerics) for call in calls]
    assert len({component.batch_key(op, call) for call in calls}) == 1, "the calls have different batch keys"
    with torch.no_grad():
        alone = [_outputs(component, op, [call])[0] for call in calls]
        largest = 0.0
        for size in SIZES:
            for order in (range(size), range(len(calls) - 1, len(calls) - 1 - size, -1)):
                together = _outputs(component, op, [calls[index] for index in order])
                largest = max(largest, *map(_difference, together, (alone[index] for index in order)))
    return largest


def _outputs(component: Component, op: str, calls: Sequence[ResolvedCall]) -> list[CallOutput]:
    return [returned.output for returned in component.forward_batch(op, calls)]


def _difference(one: CallOutput, other: CallOutput) -> float:
    assert one.tensors.keys() == other.tensors.keys()
    largest = 0.0
    for name, tensor in one.tensors.items():
        expected = other.tensors[name]
        assert (tensor.shape, tensor.dtype) == (expected.shape, expected.dtype), name
        largest = max(largest, float((tensor.double() - expected.double()).abs().max()))
    return largest
