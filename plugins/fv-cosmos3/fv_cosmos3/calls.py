"""What the components share: calls that each run alone, and what they all read of a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

from torch import Tensor

from fv_core.loop import ComponentOutput, ResolvedCall
from fv_core.loop.rows import whole
from fv_core.request import Size

Operation: TypeAlias = Callable[[ResolvedCall], ComponentOutput]
Packed: TypeAlias = Callable[[Sequence[ResolvedCall]], list[ComponentOutput]]


class OneByOne(ABC):
    """A component whose calls each run alone; `operations` maps the ops to methods."""

    @property
    @abstractmethod
    def operations(self) -> Mapping[str, Operation]: ...

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = self.operations[op]
        return [run(call) for call in calls]


def tensors(content: Sequence[object]) -> list[Tensor]:
    return [item for item in content if isinstance(item, Tensor)]


def size(call: ResolvedCall) -> Size:
    return Size(whole(call, "width"), whole(call, "height"))
