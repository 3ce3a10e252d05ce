"""Draws random numbers from one generator, whatever code asks for them, and leaves the process's generators alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fv_core.errors import WeightsError


class OwnDraws(TorchDispatchMode):
    """Inside the block every random operation of this thread draws from a CPU generator seeded with `seed`.

    The same operations in the same order give the same bits as after `torch.manual_seed(seed)`. Other threads are
    neither seen nor disturbed: the global generator is not read, seeded or moved.

    Raises:
        WeightsError: FV257, an operation that takes no generator.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator("cpu").manual_seed(seed)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags and given.get("generator") is None:
            return _taking_a_generator(func)(*args, **{**given, "generator": self._generator})
        return func(*args, **given)


def _taking_a_generator(func: Any) -> Any:
    """The operation itself, or its form with a generator: `aten.randint.low` has it in `aten.randint.low_generator`."""
    overload = func._overloadname
    form = func if _has_generator(func) else getattr(func.overloadpacket, _form_of(overload), None)
    if form is None or not _has_generator(form):
        raise WeightsError(
            "FV257",
            name="random operation",
            value=str(func),
            rule="takes no generator, so weights that it fills would not be the seed's",
            legal="operations with a generator: uniform_, normal_, randn, ...",
            remedy="Draw with one of these in the `initialise` of the component's factory.",
        )
    return form


def _form_of(overload: str) -> str:
    return "generator" if overload == "default" else f"{overload}_generator"


def _has_generator(func: Any) -> bool:
    return any(argument.name == "generator" for argument in func._schema.arguments)
