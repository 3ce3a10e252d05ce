"""Settles every value of a request against its card, or refuses it with the legal values. Free of torch."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fv_core.adapters.settle import settled_adapters
from fv_core.card import ModelCard, ParamRule
from fv_core.card.limits import MAX_FPS, MIN_FPS
from fv_core.errors import RequestError
from fv_core.request import (
    EVERYTHING,
    Adapter,
    ModalPart,
    Numerics,
    OutputSpec,
    Request,
    ResolvedRequest,
    Size,
    TaskType,
    shows_something,
)
from fv_core.runtime.requests.inputs import Inputs, check_inputs, read_inputs

SEEDS = 2**64

_FIXED_CODES = {"frames": "FV303", "steps": "FV304", "guidance": "FV305", "fps": "FV307"}


def resolve(request: Request, card: ModelCard, numerics: Numerics) -> ResolvedRequest:
    """The request with the card's values where it says nothing.

    Args:
        numerics: what None in the request means.

    Raises:
        RequestError: FV301 to FV324, the first value that is not legal.
    """
    return settle(request, card, numerics).request


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A settled request, and the contents of its inputs."""

    request: ResolvedRequest
    inputs: Inputs


def settle(request: Request, card: ModelCard, numerics: Numerics, brought: Inputs | None = None) -> Settled:
    """As `resolve`, with what the request brings.

    Args:
        brought: what it has brought already; None reads it.

    Raises: as `resolve`; FV320 and FV321 for inputs, FV322 and FV324 for adapters.
    """
    task = _task(request, card)
    inputs = read_inputs(request, task, card) if brought is None else brought
    check_inputs(inputs, task, card)
    request, fixed = _fixed(request, task, card)
    guidance = fixed.get("guidance", _guidance(request, card))
    settled = ResolvedRequest(
        model=card.model_id,
        task=task,
        prompt=_prompt(request),
        negative_prompt=_negative_prompt(request, card, task),
        seed=_seed(request),
        size=_size(request, card, None if fixed.get("frames") == 0 else inputs.size),
        frames=int(fixed.get("frames", _frames(request, card))),
        fps=fixed.get("fps", _fps(request, card)),
        steps=int(fixed.get("steps", _steps(request, card))),
        guidance=guidance,
        numerics=numerics if request.numerics is None else checked_numerics(request.numerics),
        params=_params(request, card, task),
        inputs=inputs.used,
        adapters=settled_adapters(request, card),
        adjusted=(*_unused(request, guidance), *inputs.notes),
    )
    return Settled(request=replace(settled, keep=_keep(request, card, settled)), inputs=inputs)


def as_stated(settled: ResolvedRequest) -> Request:
    """The request that settles to `settled` on the same card: nothing in it is left to the card."""
    return Request(
        prompt=settled.prompt,
        model=settled.model,
        task=settled.task,
        negative_prompt=settled.negative_prompt,
        seed=settled.seed,
        size=(settled.size.width, settled.size.height),
        frames=settled.frames,
        fps=settled.fps,
        steps=settled.steps,
        guidance=settled.guidance,
        numerics=settled.numerics,
        params=settled.params,
        inputs=tuple(
            ModalPart(modality=one.modality, path=one.path, sha256=one.sha256) for one in settled.inputs
        ),
        adapters=tuple(
            Adapter(path=one.path, scale=one.scale, sha256=one.sha256) for one in settled.adapters
        ),
        output=OutputSpec(keep=settled.keep),
    )


def _task(request: Request, card: ModelCard) -> TaskType:
    task = next(iter(card.capabilities), None) if request.task is None else request.task
    if task not in tuple(card.programs):
        raise RequestError(
            "FV309",
            name="task",
            value=str(task),
            rule=f"is not one that {card.model_id} offers",
            legal=", ".join(card.capabilities),
            remedy="Choose one of these tasks, or another model.",
        )
    return TaskType(task)


def _fixed(request: Request, task: TaskType, card: ModelCard) -> tuple[Request, Mapping[str, float]]:
    """What the task settles by itself, and the request without it."""
    fixed = card.programs[task].fixed
    for name, value in fixed.items():
        if getattr(request, name) not in (None, value):
            raise RequestError(
                _FIXED_CODES[name],
                name=name,
                value=getattr(request, name),
                rule=f"is not what task {task} of {card.model_id} has",
                legal=f"exactly {value:g}",
                remedy="Leave it out.",
            )
    usual = (card.defaults.size.width, card.defaults.size.height)  # what a settled request states again
    if fixed.get("frames") == 0 and request.size not in (None, usual):
        raise RequestError(
            "FV302",
            name="size",
            value=request.size,
            rule=f"is not read: task {task} of {card.model_id} makes no picture",
            remedy="Leave it out.",
        )
    absent: dict[str, Any] = dict.fromkeys(fixed)
    return replace(request, **absent), fixed


def _keep(request: Request, card: ModelCard, settled: ResolvedRequest) -> tuple[str, ...]:
    """The slots to return; each is written by a node that this very request runs."""
    nodes = card.programs[settled.task].active(settled)
    written = sorted({slot for node in nodes for slot in node.writes.values()})
    keep = request.output.keep if isinstance(request.output, OutputSpec) else request.output
    several = isinstance(request.output, OutputSpec) and isinstance(keep, (tuple, list))
    for slot in [slot for slot in keep if slot not in (*written, EVERYTHING)] if several else [keep]:
        raise RequestError(
            "FV310",
            name="output.keep",
            value=slot,
            rule="is not a value that the program writes for this request",
            legal=f"a tuple of {', '.join(written)}",
            remedy="Name some of these slots.",
        )
    return tuple(keep)


def checked_numerics(given: str) -> Numerics:
    """Raises:
    RequestError: FV314, there is no such promise.
    """
    if given not in tuple(Numerics):
        raise RequestError(
            "FV314",
            name="numerics",
            value=given,
            rule="is none that there is",
            legal=", ".join(Numerics),
            remedy="Leave it out for the engine's own.",
        )
    return Numerics(given)


def _prompt(request: Request) -> str:
    if not isinstance(request.prompt, str) or not shows_something(request.prompt):
        raise RequestError(
            "FV301",
            name="prompt",
            value=request.prompt,
            rule="has no visible character",
            remedy='Say what to show, for example "a red circle moving right".',
        )
    return _text("prompt", request.prompt)


def _negative_prompt(request: Request, card: ModelCard, task: TaskType) -> str:
    given = request.negative_prompt
    reads = {slot for node in card.programs[task].nodes for slot in node.reads.values()}
    if given not in (None, "", card.defaults.negative_prompt) and "request.negative_prompt" not in reads:
        raise RequestError(
            "FV310",
            name="negative prompt",
            value=given,
            rule=f"is not read by task {task} of {card.model_id}",
            remedy="Leave it out; say in the prompt what to show.",
        )
    return card.defaults.negative_prompt if given is None else _text("negative prompt", given)


def _text(name: str, text: str) -> str:
    if not isinstance(text, str) or any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise RequestError(
            "FV301",
            name=name,
            value=text,
            rule="is not text: it holds bytes that no character has",
            legal="Unicode text, in UTF-8 on a command line",
            remedy="Correct its encoding.",
        )
    return text


def _seed(request: Request) -> int:
    seed = request.seed
    if seed is None:
        return secrets.randbelow(2**32)
    if not _is_int(seed) or not 0 <= seed < SEEDS:
        raise RequestError(
            "FV306",
            name="seed",
            value=seed,
            rule="is not a seed",
            legal="a whole number from 0 to 18446744073709551615 (2^64 - 1)",
            remedy="Leave it out to have one drawn and reported.",
        )
    return seed


def _size(request: Request, card: ModelCard, own: Size | None) -> Size:
    """`own` is the size of the input that gives the request its size, if one does."""
    if request.size is None and own is None:
        return card.defaults.size
    rule = card.limits.size
    given: Any = request.size if own is None or request.size is not None else (own.width, own.height)
    whole = isinstance(given, (tuple, list)) and len(given) == 2 and all(map(_is_int, given))
    if not whole:
        raise _no_size(given, rule.legal())
    if own is not None and request.size is None and not rule.allows(own):
        raise RequestError(
            "FV302",
            name="size of the input",
            value=str(own),
            rule=f"is what this task makes, and off the grid of {card.model_id}",
            legal=rule.legal(),
            remedy=f"Resize or crop the input; the nearest legal size is {rule.nearest(own)}.",
        )
    if not rule.allows(Size(*given)):
        raise RequestError(
            "FV302",
            name="size",
            value=str(Size(*given)),
            rule=f"is off the grid of {card.model_id}",
            legal=rule.legal(),
            remedy=f"The nearest legal size is {rule.nearest(Size(*given))}.",
        )
    return Size(*given)


def _no_size(given: object, legal: str) -> RequestError:
    written = re.fullmatch(r"\s*(\d+)\s*[xX]\s*(\d+)\s*", given) if isinstance(given, str) else None
    width, height = written.groups() if written else ("width", "height")
    return RequestError(
        "FV302",
        name="size",
        value=given,
        rule="is not width and height",
        legal=legal,
        remedy=f"Give size=({width}, {height}), two whole numbers.",
    )


def _frames(request: Request, card: ModelCard) -> int:
    frames = card.defaults.frames if request.frames is None else request.frames
    rule = card.limits.frames
    if not _is_int(frames) or not rule.allows(frames):
        raise RequestError(
            "FV303",
            name="frames",
            value=frames,
            rule=f"is not a count that {card.model_id} can make",
            legal=rule.legal(),
            remedy=f"The nearest legal count is {rule.nearest(frames)}."
            if _is_int(frames)
            else "Give a whole number.",
        )
    return frames


def _fps(request: Request, card: ModelCard) -> float:
    fps = card.defaults.fps if request.fps is None else request.fps
    if not _is_number(fps) or not MIN_FPS <= fps <= MAX_FPS:
        raise RequestError(
            "FV307",
            name="fps",
            value=fps,
            rule="is not a frame rate that a file can hold",
            legal=f"{MIN_FPS:g} to {MAX_FPS}",
            remedy=f"Leave it out for the card's {card.defaults.fps:g}.",
        )
    return float(fps)


def _steps(request: Request, card: ModelCard) -> int:
    recipe, (least, most) = card.recipe, card.limits.steps
    steps = recipe.steps if request.steps is None else request.steps
    if recipe.steps_fixed:
        least = most = recipe.steps
    if not _is_int(steps) or not least <= steps <= most:
        legal = f"exactly {least}" if least == most else f"{least} to {most}"
        raise RequestError(
            "FV304",
            name="steps",
            value=steps,
            rule=f"is not a number of steps that the recipe of {card.model_id} allows",
            legal=legal,
            remedy=f"Leave it out for the recipe's {recipe.steps}.",
        )
    return steps


def _guidance(request: Request, card: ModelCard) -> float:
    least, most = card.limits.guidance
    guidance = card.recipe.guidance if request.guidance is None else request.guidance
    if not _is_number(guidance) or not least <= guidance <= most or math.isinf(guidance):
        raise RequestError(
            "FV305",
            name="guidance",
            value=guidance,
            rule=f"is not a guidance that {card.model_id} takes",
            legal=f"{least:g} (off) to {most:g}",
            remedy=f"Leave it out for the recipe's {card.recipe.guidance:g}.",
        )
    return float(guidance)


def _params(request: Request, card: ModelCard, task: TaskType) -> dict[str, float | int | str | bool]:
    for name in request.params if isinstance(request.params, Mapping) else (request.params,):
        if name not in tuple(card.params):
            raise RequestError(
                "FV310",
                name="parameter",
                value=name,
                rule=f"is not one that {card.model_id} reads",
                legal=", ".join(card.params) or "none",
                remedy="Correct the name, or leave it out.",
            )
    return {
        name: _param(name, rule, request, card, card.param_default(name, task))
        for name, rule in card.params.items()
    }


def _param(
    name: str, rule: ParamRule, request: Request, card: ModelCard, default: float | int | str | bool
) -> float | int | str | bool:
    value = request.params.get(name, default)
    if not rule.allows(value):
        raise RequestError(
            "FV310",
            name=f"parameter {name}",
            value=value,
            rule=f"is not legal for {card.model_id}",
            legal=rule.legal(),
            remedy=f"Leave it out for {default!r}.",
        )
    return value


def _unused(request: Request, guidance: float) -> tuple[str, ...]:
    if request.negative_prompt and guidance == 1.0:
        return ("the negative prompt is not used: guidance 1 is off",)
    return ()


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
