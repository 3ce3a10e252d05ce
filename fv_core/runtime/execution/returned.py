"""Whether what a component returned is what its contract says: an output per call, tensors by name, caches lined up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor

from fv_core.loop import CacheMode, CallOutput, ComponentCall, ComponentOutput
from fv_core.loop.outputs import described, misfit


def checked(returned: object, calls: Sequence[ComponentCall]) -> list[ComponentOutput]:
    """`returned` as what it has to be.

    Args:
        calls: those of the forward, all of one component and operation.

    Raises:
        RunError: FV502, told with what came back.
    """
    name, legal = f"component {calls[0].component}.{calls[0].op}", f"a list of {len(calls)} ComponentOutput"
    if not isinstance(returned, (list, tuple)):
        forgotten = "Does forward_batch end without `return`?" if returned is None else "Return one per call."
        raise misfit(name, found=described(returned), legal=legal, remedy=forgotten)
    if len(returned) != len(calls):
        raise misfit(name, found=f"{len(returned)} outputs", legal=legal, remedy="Return one per call.")
    for one, call in zip(returned, calls, strict=True):
        if not isinstance(one, ComponentOutput) or not isinstance(one.output, CallOutput):
            wrong = one.output if isinstance(one, ComponentOutput) else one
            remedy = "Return ComponentOutput(output=CallOutput(tensors={name: tensor})) for each call."
            raise misfit(name, found=f"a list with {described(wrong)} in it", legal=legal, remedy=remedy)
        _check_outputs(name, one.output)
        _check_caches(name, one, call)
    return cast("list[ComponentOutput]", list(returned))


def _check_outputs(name: str, output: CallOutput) -> None:
    for kind, values, wanted in (("tensors", output.tensors, Tensor), ("texts", output.texts, str)):
        for key, value in values.items():
            if not isinstance(value, wanted):
                legal = "a tensor" if wanted is Tensor else "a str"
                remedy = f"CallOutput.{kind} holds nothing else."
                raise misfit(f"output {key} of {name}", found=described(value), legal=legal, remedy=remedy)


def _check_caches(name: str, one: ComponentOutput, call: ComponentCall) -> None:
    if len(one.caches) != len(call.caches):
        raise misfit(
            f"caches of {name}",
            found=f"{len(one.caches)} of them",
            legal=f"{len(call.caches)}, as many as the call has",
            remedy="Return ComponentOutput(output=..., caches=(contents, ...)), None for one that is only read.",
        )
    for index, (use, content) in enumerate(zip(call.caches, one.caches, strict=True)):
        if not isinstance(content, list if use.mode is CacheMode.APPEND else type(None)):
            raise misfit(
                f"cache {index} ({use.ref.pool}) of {name}",
                found=described(content),
                legal="the list of its next version" if use.mode is CacheMode.APPEND else "None",
                remedy=f"The loop uses it to {use.mode}.",
            )
