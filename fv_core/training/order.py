"""Which samples an optimizer step takes: a pure function of the step, so there is no position to store or to lose.

The samples of a step share a bucket. Every epoch has all samples once; what is left of a bucket at its end goes first
in the next one, so nothing is dropped, and a bucket with fewer samples than a step takes has its turn every few epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from fv_core.loop.keyed import DrawKey, keyed_permutation
from fv_core.training.contract import Bucket

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A sample by its index, and the epoch that it is taken in."""

    index: int
    epoch: int


class Order:
    """The order of the samples of a run.

    Args:
        buckets: of each sample, in order.
        total: samples of an optimizer step.
        seed: of the run. shuffle: whether each epoch has an order of its own; else that of the source.
    """

    def __init__(self, buckets: Sequence[Bucket], *, total: int, seed: int, shuffle: bool) -> None:
        self._total = total
        self._seed = seed
        self._shuffle = shuffle
        self._members = [
            [index for index, own in enumerate(buckets) if own == bucket] for bucket in sorted(set(buckets))
        ]
        # Recomputing an epoch's order for each of its steps would take longer than the step.
        self._order = lru_cache(maxsize=2 * len(self._members))(self._order_of)
        self._turns = lru_cache(maxsize=2)(self._turns_of)

    def picks(self, step: int) -> list[Pick]:
        """The samples of an optimizer step, in the order of their numbers."""
        epoch = self._epoch(step)
        bucket, batch = self._turns(epoch)[step - self._steps_before(epoch)]
        size = len(self._members[bucket])
        places = range(batch * self._total, (batch + 1) * self._total)
        return [
            Pick(index=self._order(bucket, place // size)[place % size], epoch=place // size)
            for place in places
        ]

    def _steps_before(self, epoch: int) -> int:
        return sum(epoch * len(members) // self._total for members in self._members)

    def _epoch(self, step: int) -> int:
        """The epoch that a step is of: the last one that begins at it or before."""
        samples = sum(map(len, self._members))
        epoch = step * self._total // samples
        while self._steps_before(epoch + 1) <= step:
            epoch += 1
        return epoch

    def _turns_of(self, epoch: int) -> list[tuple[int, int]]:
        """The steps of an epoch in their order: a bucket, and which of its batches."""
        turns = [
            (bucket, batch)
            for bucket, members in enumerate(self._members)
            for batch in range(epoch * len(members) // self._total, (epoch + 1) * len(members) // self._total)
        ]
        return self._shuffled(turns, DrawKey(seed=self._seed, purpose="bucket order", step=epoch))

    def _order_of(self, bucket: int, epoch: int) -> list[int]:
        return self._shuffled(
            self._members[bucket], DrawKey(seed=self._seed, purpose="shuffle", step=epoch, sample=bucket)
        )

    def _shuffled(self, items: list[T], key: DrawKey) -> list[T]:
        return [items[place] for place in keyed_permutation(key, len(items))] if self._shuffle else items
