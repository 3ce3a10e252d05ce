"""What a loop reads of a component's outputs, held to the name, the shape and the type that the loop asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import torch
from torch import Tensor

from fv_core.errors import RunError
from fv_core.loop.work import CallOutput

FLOATS: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WHOLE: Final = (torch.int64, torch.int32)


def tensor_of(
    output: CallOutput,
    name: str,
    *,
    of: str,
    shape: Sequence[int | str],
    dtypes: Collection[torch.dtype] = FLOATS,
) -> Tensor:
    """The output `name`. Reads no value of it, so it costs no transfer and stays differentiable.

    Args:
        of: the component and operation that returned it: "transformer.velocity".
        shape: its axes; a text names one of any length from 1 up.

    Raises:
        RunError: FV502, it is absent, or of another shape or type; what would broadcast would be wrong unseen.
    """
    found = output.tensors.get(name)
    if isinstance(found, Tensor) and found.dtype in dtypes and _fits(found.shape, shape):
        return found
    raise misfit(
        f"output {name} of component {of}",
        found=absent(output) if found is None else described(found),
        legal=f"{', '.join(map(_short, dtypes))} [{', '.join(map(str, shape))}]",
        remedy=_slip(found, shape) or "Return it so, or report it to the plugin's author.",
    )


def absent(output: CallOutput) -> str:
    """That an output is not there, with those that came back instead."""
    names = (*output.tensors, *output.texts)
    return f"no such output, but {', '.join(map(str, names)) or 'none at all'}"


def described(value: object) -> str:
    """A value in words: `float32 [16, 3, 4, 4]` for a tensor, "a str" for another."""
    if isinstance(value, Tensor):
        return f"{_short(value.dtype)} {list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def misfit(name: str, *, found: str, legal: str, remedy: str) -> RunError:
    """FV502: what came back is not what the contract says."""
    return RunError(
        "FV502", name=name, value=found, rule="is not what it has to be", legal=legal, remedy=remedy
    )


def _fits(shape: Sequence[int], wanted: Sequence[int | str]) -> bool:
    return len(shape) == len(wanted) and all(
        size > 0 if isinstance(want, str) else size == want for size, want in zip(shape, wanted, strict=True)
    )


def _slip(found: object, wanted: Sequence[int | str]) -> str:
    """The likely slip, where the shape shows it."""
    if isinstance(found, Tensor) and found.shape[:1] == (1,) and _fits(found.shape[1:], wanted):
        return "Calls are single samples: drop the batch axis."
    return ""


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
