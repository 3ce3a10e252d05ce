"""The samples of each step, fetched while the one before it computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Self

from torch import Tensor

from fv_core.loop.keyed import DrawKey, keyed_uniform
from fv_core.training.config import DataTable, TrainTable
from fv_core.training.contract import Batch, Sample, Source
from fv_core.training.order import Order
from fv_core.training.ranks import Ranks


class Batches:
    """The batches of one rank. Use it as a context manager.

    Args:
        source: of the samples. data: how it is used. train: how many a step takes.
        ranks: which of how many this one is.
        empty: what stands for a caption that is dropped. empty_embeds: its embeddings, where samples have theirs.
    """

    def __init__(
        self,
        source: Source,
        data: DataTable,
        train: TrainTable,
        ranks: Ranks,
        *,
        empty: str,
        empty_embeds: Tensor | None = None,
    ) -> None:
        self._source = source
        self._data = data
        self._train = train
        self._empty = empty
        self._empty_embeds = empty_embeds
        own = train.batch * train.accumulate
        buckets = [source.bucket(index) for index in range(len(source))]
        self._order = Order(buckets, total=own * ranks.count, seed=train.seed, shuffle=data.shuffle)
        self._own = range(ranks.rank * own, (ranks.rank + 1) * own)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fv-data")
        self._ahead: tuple[int, Future[list[Batch]]] | None = None

    def of(self, step: int) -> list[Batch]:
        """The batches of an optimizer step that are this rank's; the next step's are fetched meanwhile."""
        ahead, self._ahead = self._ahead, None
        now = ahead[1] if ahead is not None and ahead[0] == step else self._thread.submit(self._fetched, step)
        batches = now.result()
        self._ahead = (step + 1, self._thread.submit(self._fetched, step + 1))
        return batches

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _fetched(self, step: int) -> list[Batch]:
        picks = self._order.picks(step)
        return [
            Batch(
                step=step,
                numbers=numbers,
                samples=[
                    self._captioned(
                        self._source.sample(picks[number].index, picks[number].epoch), step, number
                    )
                    for number in numbers
                ],
            )
            for numbers in _parts(self._own, self._train.batch)
        ]

    def _captioned(self, sample: Sample, step: int, number: int) -> Sample:
        if self._data.caption_dropout:
            key = DrawKey(seed=self._train.seed, purpose="caption dropout", step=step, sample=number)
            if keyed_uniform(key) < self._data.caption_dropout:
                return replace(sample, caption=self._empty, embeds=self._empty_embeds)
        return sample


def _parts(numbers: range, size: int) -> Iterator[Sequence[int]]:
    for begin in range(0, len(numbers), size):
        yield numbers[begin : begin + size]
