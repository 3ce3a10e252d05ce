"""Who reads a parameter: the loops of a program, its conditions, or the rows of its components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fv_core.card import ModelCard
from fv_core.errors import CardError, RequestError
from fv_core.loop import Loop
from fv_core.program import LoopNode, Program
from fv_core.request import ResolvedRequest
from fv_core.runtime.loops import build_loop
from fv_core.runtime.requests.streams import check_streams

_PREFIX = "request.params."


def build_loops(card: ModelCard) -> dict[str, Loop[Any, Any]]:
    """All loops of a card.

    Raises:
        CardError: as `build_loop` and `check_streams`, or FV206 a parameter of the card that no task reads.
    """
    loops = {loop_id: build_loop(card, loop_id) for loop_id in card.loops}
    check_streams(card, loops)
    read = sorted({name for program in card.programs.values() for name in _read(program, loops)})
    for name in card.params:
        if name not in read:
            raise CardError(
                "FV206",
                name=f'card "{card.model_id}": params',
                value=name,
                rule="is read by no loop and no program of the card",
                legal=", ".join(read) or "none",
                remedy="Remove it, or bind a loop that reads it.",
            )
    return loops


def check_params(
    settled: ResolvedRequest, card: ModelCard, loops: Mapping[str, Loop[Any, Any]]
) -> ResolvedRequest:
    """The request, with a note for each parameter that was changed and that no node it runs reads.

    Raises:
        RequestError: FV310, such a parameter is read by no node of the task at all.
    """
    program, task = card.programs[settled.task], settled.task
    legal = _read(program, loops) & card.params.keys()
    used = _read(replace(program, nodes=program.active(settled)), loops) | _compared(program)
    notes = []
    for name, value in settled.params.items():
        if name in used or value == card.param_default(name, task):
            continue
        if name not in legal:
            raise RequestError(
                "FV310",
                name=f"parameter {name}",
                value=value,
                rule=f"is not read by task {task} of {card.model_id}",
                legal=", ".join(sorted(legal)) or "none",
                remedy="Leave it out, or choose the task that it belongs to.",
            )
        notes.append(f"parameter {name} is not used by what this request runs")
    return replace(settled, adjusted=(*settled.adjusted, *notes))


def _read(program: Program, loops: Mapping[str, Loop[Any, Any]]) -> set[str]:
    slots = {slot for node in program.nodes for slot in node.reads.values()}
    named = {slot.removeprefix(_PREFIX) for slot in slots if slot.startswith(_PREFIX)}
    driven = [loops[node.loop] for node in program.nodes if isinstance(node, LoopNode)]
    return named.union(_compared(program), *(loop.request_params for loop in driven))


def _compared(program: Program) -> set[str]:
    fields = {node.when.field for node in program.nodes if node.when is not None}
    return {field.removeprefix("params.") for field in fields if field.startswith("params.")}
