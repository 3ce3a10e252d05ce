"""Watches results for NaN and infinity without stopping the device at every step."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from fv_core.errors import RunError
from fv_core.extend.chain import Chain
from fv_core.loop import StepResult, WorkPlan


class NonFiniteWatch:
    """Collects the ends of each output's values on the device; `check` reads them in one transfer.

    On the CPU there is nothing to wait for, so they are read at once; on an accelerator before anything is shown.
    """

    def __init__(self, device: torch.device) -> None:
        self._at_once = device.type == "cpu"
        self._ends: list[Tensor] = []
        self._names: list[str] = []

    def add(self, plan: WorkPlan, result: StepResult, chain: Chain) -> None:
        """Takes in a step's outputs, told by the component that returned them or the interceptor that answered.

        Raises:
            RunError: FV501, on the CPU, at the step that is not finite.
        """
        for call, output in zip(plan.calls, result.outputs, strict=True):
            answerer = chain.answerer(call, plan)
            by = "" if answerer is None else f", answered by interceptor {answerer}"
            for name, tensor in output.tensors.items():
                if tensor.is_floating_point() and tensor.numel():
                    self._ends += ends(tensor)
                    self._names.append(
                        f"{name} of {call.component}.{call.op} ({call.branch}, step {plan.step + 1}){by}"
                    )
        if self._at_once:
            self.check()

    def check(self) -> None:
        """Raises:
        RunError: FV501, the first result since the last check that is not finite.
        """
        read, names = _read(self._ends), self._names
        self._ends, self._names = [], []
        for index, name in enumerate(names):
            if not all(map(math.isfinite, read[2 * index : 2 * index + 2])):
                raise RunError(
                    "FV501",
                    name=name,
                    rule="has NaN or infinite values",
                    remedy="Try --dtype float32; if it persists the weights or the request's parameters are at fault.",
                )


def ends(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest value, on its device; NaN both where there is one.

    They are finite if all values are, and take a tenth of the time that asking each of them does. `tensor` has values.
    """
    return torch.aminmax(tensor)


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no value is NaN or infinite; waits for the device."""
    found = [end for one in tensors if one.is_floating_point() and one.numel() for end in ends(one)]
    return all(map(math.isfinite, _read(found)))


def _read(scalars: list[Tensor]) -> list[float]:
    """Scalars of floating-point types, in one transfer."""
    if not scalars:
        return []
    values: list[float] = torch.stack(scalars).tolist()
    return values
