"""Watches results for NaN and infinity without stopping the device at every step."""

from __future__ import annotations

import torch
from torch import Tensor

from fv_core.errors import RunError
from fv_core.extend.chain import Chain
from fv_core.loop import StepResult, WorkPlan


class NonFiniteWatch:
    """Collects one flag per step on the device; `check` reads them in one transfer.

    On the CPU flags cost nothing to read, so they are read at once; on an accelerator before anything is shown.
    """

    def __init__(self) -> None:
        self._flags: list[Tensor] = []
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
                if tensor.is_floating_point():
                    self._flags.append(torch.isfinite(tensor).all())
                    self._names.append(
                        f"{name} of {call.component}.{call.op} ({call.branch}, step {plan.step + 1}){by}"
                    )
        if self._flags and self._flags[0].device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Raises:
        RunError: FV501, the first result since the last check that is not finite.
        """
        flags, names = self._flags, self._names
        self._flags, self._names = [], []
        if not flags:
            return
        for finite, name in zip(torch.stack(flags).tolist(), names, strict=True):
            if not finite:
                raise RunError(
                    "FV501",
                    name=name,
                    rule="has NaN or infinite values",
                    remedy="Try --dtype float32; if it persists the weights or the request's parameters are at fault.",
                )
