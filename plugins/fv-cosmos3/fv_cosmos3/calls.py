"""What the components share: calls that each run alone, and typed access to a call's rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

from torch import Tensor

from fv_core.loop import ComponentOutput, ResolvedCall
from fv_core.request import Size

Operation: TypeAlias = Callable[[ResolvedCall], ComponentOutput]


class OneByOne:
    """A component whose calls each run alone; `operations` maps the ops to methods."""

    @property
    def operations(self) -> Mapping[str, Operation]:
        raise NotImplementedError

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = self.operations[op]
        return [run(call) for call in calls]


def tensors(content: Sequence[object]) -> list[Tensor]:
    return [item for item in content if isinstance(item, Tensor)]


def size(call: ResolvedCall) -> Size:
    return Size(whole(call, "width"), whole(call, "height"))


def tensor(call: ResolvedCall, name: str) -> Tensor:
    row = call.rows[name]
    if not isinstance(row, Tensor):
        raise TypeError(f"row {name} is a tensor, got {type(row).__name__}")
    return row


def number(call: ResolvedCall, name: str) -> float:
    row = call.rows[name]
    if isinstance(row, str):
        raise TypeError(f"row {name} is a number, got {row!r}")
    return float(row)


def whole(call: ResolvedCall, name: str) -> int:
    return int(number(call, name))
