"""Executes plans: resolves references, packs compatible calls into forwards, splits the results.

Under `reference` every call, or group of calls, of a request runs by itself. Under `exact` and `fast` those with equal
batch keys share a forward while that gains time. A component gives calls equal keys under `exact` only if sharing
cannot change their bits, and is not believed: the first forward of each shape is checked.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch

from fv_core.errors import FvError
from fv_core.loop import ComponentOutput, StepResult
from fv_core.loop.outputs import described
from fv_core.request import Numerics
from fv_core.runtime.batching import Batching
from fv_core.runtime.environment import settings
from fv_core.runtime.execution import packing
from fv_core.runtime.execution.calls import Call, Task, Unit, Work, rows, spare
from fv_core.runtime.execution.returned import checked
from fv_core.runtime.execution.sharing import same
from fv_core.runtime.faults import contained

APART: Final = (
    "{component}.{op} gives other bits beside other requests than alone here, so exact requests run it alone"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What one work came to, and what its own calls took: an equal share of each forward, without loading."""

    result: StepResult | FvError
    seconds: float


def execute(works: Sequence[Work]) -> list[StepResult | FvError]:
    """The result of each work, or the error that ended it; one that fails leaves the others alone."""
    return [one.result for one in execute_timed(works)]


@torch.no_grad()
def execute_timed(works: Sequence[Work]) -> list[Executed]:
    """As `execute`, with the time of each."""
    tasks = [Task(work) for work in works]
    for units in packing.alike(tasks):
        _compute(units)
    return [Executed(result=task.result(), seconds=task.seconds) for task in tasks]


def _compute(units: Sequence[Unit]) -> None:
    """Computes each result once: units that want one which another is about to make wait for it, and find it then."""
    first: dict[Hashable, Unit] = {}
    waiting = [unit for unit in units if first.setdefault(unit[0].name() or id(unit), unit) is not unit]
    _pack(list(first.values()))
    _pack(waiting)


def _pack(units: Sequence[Unit]) -> None:
    prepared = []
    for unit in units:
        with _timed(unit):
            ready = [call for call in unit if call.prepare()]
        if ready:
            prepared.append(ready)
    for alike in packing.by_key(prepared):
        for forward in packing.forwards(alike):
            with _timed(_calls(forward)):
                _forward([unit for unit in forward if unit[0].going()])


@contextmanager
def _timed(calls: Sequence[Call]) -> Iterator[None]:
    """Shares what the block takes among the calls, all of one instance; loading is nobody's."""
    instance = calls[0].task.work.instance
    loading, began = instance.loading_s, time.perf_counter()
    yield
    seconds = time.perf_counter() - began - (instance.loading_s - loading)
    for call in calls:
        call.task.seconds += seconds / len(calls)


def _forward(units: Sequence[Unit]) -> None:
    if len(units) > 1:
        _shared(units)
    else:
        for unit in units:
            _alone(unit)


def _alone(unit: Unit, *notes: str) -> bool:
    """Runs one unit by itself; whether it came to something. What its caches hold may be used up."""
    first = unit[0]
    if not first.going():
        return False
    try:
        outputs = _run([unit])
    except Exception as error:
        given = ", ".join(f"{name} {described(row)}" for name, row in first.resolved.rows.items())
        first.fail(error, given=given)
        return False
    _accept([unit], outputs, *notes)
    return True


def _shared(units: Sequence[Unit]) -> None:
    """Runs several units in one forward, or each alone where that fails or changes bits."""
    first = units[0]
    batching, count = _batching(first), _batching(first).count(packing.operation(first))
    try:
        outputs = _run([spare(unit) for unit in units])
    except Exception:  # whose fault it is shows when each runs alone
        count.extra += 1
        went = [_alone(unit) for unit in units]
        if all(went):
            batching.gain.failed(packing.kind_of(first), rows(units))
        return
    if first[0].task.work.numerics is Numerics.EXACT and not _check(units, outputs):
        count.extra += 1
        batching.found_dependent(packing.operation(first), packing.kind_of(first))
        for unit in units:
            _alone(unit, APART.format(component=first[0].call.component, op=first[0].call.op))
        return
    _accept(units, outputs)


def _check(units: Sequence[Unit], outputs: Sequence[ComponentOutput]) -> bool:
    """Whether each unit comes to the same bits alone, tried once for each shape of a forward and setting of torch.

    One whose request was cancelled meanwhile starts no other call: the shape is tried again next time.
    """
    batching = _batching(units[0])
    switches = settings(units[0][0].task.work.instance.device)
    kind = (packing.shape(units), torch.get_num_threads(), *switches.items())
    if batching.is_sound(kind):
        return True
    whole = True
    for unit, shared in _by_unit(units, outputs):
        if not unit[0].going():
            whole = False
            continue
        batching.count(packing.operation(unit)).extra += 1
        try:
            alone = _returned([spare(unit)])
        except Exception:  # it fails alone, where its request is told of it
            return False
        if not same(shared, alone):
            return False
    if whole:
        batching.found_sound(kind)
    return True


def _by_unit(
    units: Sequence[Unit], outputs: Sequence[ComponentOutput]
) -> Iterator[tuple[Unit, Sequence[ComponentOutput]]]:
    begin = 0
    for unit in units:
        yield unit, outputs[begin : begin + len(unit)]
        begin += len(unit)


def _run(units: Sequence[Unit]) -> list[ComponentOutput]:
    """The outputs of one forward, told to whoever judges what sharing gains."""
    with _batching(units[0]).gain.timed(packing.kind_of(units[0]), rows(units)):
        return _returned(units)


def _returned(units: Sequence[Unit]) -> list[ComponentOutput]:
    calls = _calls(units)
    first = calls[0]
    with contained(first.where), first.adapted():
        returned = first.component.forward_batch(first.call.op, [call.resolved for call in calls])
    return checked(returned, [call.call for call in calls])


def _accept(units: Sequence[Unit], outputs: Sequence[ComponentOutput], *notes: str) -> None:
    _batching(units[0]).count(packing.operation(units[0])).add(rows(units))
    for call, output in zip(_calls(units), outputs, strict=True):
        call.accept(output, notes)


def _calls(units: Sequence[Unit]) -> list[Call]:
    return [call for unit in units for call in unit]


def _batching(unit: Unit) -> Batching:
    return unit[0].task.work.instance.batching
