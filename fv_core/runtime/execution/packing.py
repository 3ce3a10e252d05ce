"""Which units of a step run in one forward: alike, no more rows than the engine allows, and only while it gains."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import torch

from fv_core.request import Numerics
from fv_core.runtime.batching import Operation
from fv_core.runtime.execution.calls import Task, Unit, Work

EVEN: Final = (1, 2, 4)
"""Numbers of threads with which exact calls share forwards on a CPU."""


def alike(tasks: Sequence[Task]) -> list[list[Unit]]:
    """Units in the order they run, those that may share a forward as far as core can tell side by side."""
    found: dict[Hashable, list[Unit]] = {}
    for task in tasks:
        for unit in task.units():
            found.setdefault(unit[0].shared_key(), []).append(unit)
    return list(found.values())


def by_key(units: Sequence[Unit]) -> list[list[Unit]]:
    """Prepared units by what their component says; a group whose calls differ runs in one forward of its own."""
    found: dict[Hashable, list[Unit]] = {}
    for unit in units:
        one = len({call.key for call in unit}) == 1
        found.setdefault((one, unit[0].key if one else id(unit)), []).append(unit)
    return list(found.values())


def forwards(waiting: Sequence[Unit]) -> Iterator[list[Unit]]:
    """The units of each forward in turn. Ask for the next when the last has run: what it took counts."""
    rest = list(waiting)
    while rest:
        size = _next(rest)
        yield rest[:size]
        del rest[:size]


def _next(waiting: Sequence[Unit]) -> int:
    """How many of the waiting units the next forward has."""
    work, batching = waiting[0][0].task.work, waiting[0][0].task.work.instance.batching
    if len(waiting) == 1 or work.numerics is Numerics.REFERENCE:
        return 1
    kind, size = kind_of(waiting[0]), len(waiting[0])
    if work.numerics is Numerics.EXACT and (not _cuts_evenly(work) or batching.is_dependent(kind)):
        return 1
    for index, unit in enumerate(waiting[1:], 1):
        if size + len(unit) > batching.limit or not batching.gain.joins(kind, size, len(unit)):
            return index
        size += len(unit)
    return len(waiting)


def _cuts_evenly(work: Work) -> bool:
    """Whether threads cut a batch between whole vectors.

    Measured with torch 2.13 on an AVX-512 CPU: of 1 to 8 threads those that are none of `EVEN` gave samples of one Wan
    2.1 forward other bits, which ones by their values, so that no check of a shape can tell.
    """
    return work.instance.device.type != "cpu" or torch.get_num_threads() in EVEN


def operation(unit: Unit) -> Operation:
    call, model = unit[0].call, unit[0].task.work.instance.card.model_id
    return Operation(model=model, component=call.component, op=call.op)


def kind_of(unit: Unit) -> Hashable:
    """All that makes forwards alike but the number of their rows."""
    return (operation(unit), unit[0].shared_key(), unit[0].key)


def shape(units: Sequence[Unit]) -> Hashable:
    """How a forward is put together: the sizes of its units, of one kind."""
    return (kind_of(units[0]), tuple(map(len, units)))
