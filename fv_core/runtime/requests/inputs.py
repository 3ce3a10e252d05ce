"""The inputs of a request, matched with what its task reads, and decoded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fv_core.card import ModelCard
from fv_core.errors import RequestError
from fv_core.program import InputSpec
from fv_core.request import ModalPart, Request, Size, TaskType, UsedInput


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inputs:
    """What a request brings beside its prompt.

    Args:
        used: for the reply; contents: arrays by slot ("request.image"), see `fv_core.media.inputs`.
        size: of the input that gives the request its size, if one does.
        notes: how an input was not taken as given.
    """

    used: tuple[UsedInput, ...] = ()
    contents: Mapping[str, Any] = field(default_factory=dict)
    size: Size | None = None
    notes: tuple[str, ...] = ()


def read_inputs(request: Request, task: TaskType, card: ModelCard) -> Inputs:
    """Raises:
    RequestError: FV308 an input is missing or not read by the task, FV320 one cannot be read, FV321 too large.
    """
    parts = request.inputs if isinstance(request.inputs, (tuple, list)) else (request.inputs,)
    left, size = list(parts), None
    used: list[UsedInput] = []
    contents: dict[str, Any] = {}
    notes: list[str] = []
    for spec in card.programs[task].inputs:
        part = next(
            (one for one in left if isinstance(one, ModalPart) and one.modality == spec.modality), None
        )
        if part is None and spec.optional:
            continue
        if part is None:
            raise _missing(spec, task, card)
        left.remove(part)
        one, content, told = _read(part)
        used.append(one)
        contents[spec.slot] = content
        notes += told
        if spec.sizes:
            height, width = content.shape[-3:-1]
            size = Size(width, height)
    if left:
        raise _unread(left[0], task, card)
    return Inputs(used=tuple(used), contents=contents, size=size, notes=tuple(notes))


def check_inputs(inputs: Inputs, task: TaskType, card: ModelCard) -> None:
    """Raises:
    RequestError: FV308, they are not those that the task reads.
    """
    specs = card.programs[task].inputs
    brought = [one.modality for one in inputs.used]
    for spec in specs:
        if spec.modality not in brought and not spec.optional:
            raise _missing(spec, task, card)
    for one in inputs.used:
        if brought.count(one.modality) > 1 or one.modality not in {spec.modality for spec in specs}:
            raise _unread(ModalPart(modality=one.modality, path=one.path), task, card)


def _read(part: ModalPart) -> tuple[UsedInput, Any, tuple[str, ...]]:
    from fv_core.media.inputs import (  # PyAV and Pillow load only for what brings a file
        decode_part,
        read_part,
    )

    data = read_part(part)
    digest = hashlib.sha256(data).hexdigest()
    if part.sha256 and part.sha256 != digest:
        raise RequestError(
            "FV320",
            name=f"{part.modality} input",
            value=part.path,
            rule=f"has changed: its sha256 is {digest}",
            legal=part.sha256,
            remedy="Bring back the file that the run was made with, or make a new request.",
        )
    decoded = decode_part(part, data)
    used = UsedInput(modality=part.modality, path=part.path, sha256=digest)
    return used, decoded.content, decoded.notes


def _missing(spec: InputSpec, task: TaskType, card: ModelCard) -> RequestError:
    return RequestError(
        "FV308",
        name=f"{spec.modality} input",
        rule=f"is missing: task {task} of {card.model_id} needs one",
        remedy=f"Give one, on the command line with --{spec.modality} FILE.",
    )


def _unread(part: object, task: TaskType, card: ModelCard) -> RequestError:
    name, value, takers = "input", part, ""
    if isinstance(part, ModalPart):
        name, value = f"{part.modality} input", part.path or "bytes"
        takers = ", ".join(
            one
            for one in card.capabilities
            if one is not task and part.modality in {spec.modality for spec in card.programs[one].inputs}
        )
    return RequestError(
        "FV308",
        name=name,
        value=value,
        rule=f"is not read by task {task} of {card.model_id}",
        legal=", ".join(["a text prompt", *(f"one {spec.modality}" for spec in card.programs[task].inputs)]),
        remedy=f"Leave it out, or choose a task that takes it: {takers}."
        if takers
        else "Leave it out, or choose a model that takes it.",
    )
