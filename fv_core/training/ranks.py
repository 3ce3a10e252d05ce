"""The processes that share a run: torchrun says which of them this is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among `count`. Use it as a context manager, which joins them."""

    rank: int = 0
    count: int = 1

    @classmethod
    def from_environment(cls) -> Ranks:
        """As torchrun tells; alone where nothing does."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and tells."""
        return self.rank == 0

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Makes each tensor the sum over all ranks, in place, in one exchange."""
        if self.count > 1:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            dist.all_reduce(flat)
            parts = flat.split([tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.count > 1:
            dist.barrier()

    def __enter__(self) -> Self:
        if self.count > 1:
            dist.init_process_group("gloo", rank=self.rank, world_size=self.count)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.count > 1:
            dist.destroy_process_group()
