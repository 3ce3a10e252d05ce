"""Gates on what an interceptor is: its record and parameters, its answers, and how its hooks conduct themselves."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any, Final

from fv_core.errors import FvError
from fv_core.extend.answers import structure
from fv_core.parity.bits import fingerprint
from fv_core.parity.interception import InterceptorTrial, Moment
from fv_core.parity.trial import Finding
from fv_core.plugins.reference import resolve_reference
from fv_core.runtime.extensions import enable

_ANSWER, _CHANGED = "FV507", "FV508"  # each has a gate of its own
_SHOWN = 60
_FOREIGN: Final = ({"no": "value"}, ["no value"])  # what no parameter is declared to take


def record(trial: InterceptorTrial) -> Finding:
    """It can be switched on as declared: an id, known kinds of work, frozen parameters with defaults, a class."""
    spec, wrong = trial.spec, []
    if not all(spec.id.partition("/")):
        wrong.append(f"its id {spec.id!r} is not <plugin>/<name>")
    try:
        (enabled,) = enable([spec])
        enable([(spec, trial.params)])
    except FvError as error:
        return Finding(wrong=[*wrong, f"{error.code}: {error.message}"], of=1, counted="faults of the record")
    if not type(enabled.params).__dataclass_params__.frozen:
        wrong.append(f"its parameters, {spec.params}, are not a frozen dataclass")
    kind = enabled.interceptor.state_type()
    if not dataclasses.is_dataclass(kind) and kind is not type(None):
        wrong.append(f"its state, {kind.__name__}, is not a dataclass")
    return Finding(wrong=wrong, of=1, counted="faults of the record")


def params(trial: InterceptorTrial) -> Finding:
    """A parameter that it does not declare is refused, and so is a value of another type for any that it does."""
    names = [
        field.name for field in dataclasses.fields(resolve_reference(trial.spec.params, owner=trial.spec.id))
    ]
    tried: list[tuple[str, Any]] = [("no_such_parameter", 1)]
    tried += [(name, value) for name in names for value in _FOREIGN]
    wrong = []
    for name, value in tried:
        try:
            enable([(trial.spec, {name: value})])
        except FvError:
            continue
        wrong.append(f"parameter {name} was accepted with the value {value!r}")
    return Finding(wrong=wrong, of=len(tried), counted="wrong parameters that are accepted")


def answers(trial: InterceptorTrial) -> Finding:
    """What it answers has the names, shapes, types and places of what is computed without it."""
    wrong: list[str] = []
    seen = 0
    for request in trial.requests:
        computed = {
            moment.place: structure(moment.output) for moment in trial.moments(request, trial.plain.engine)
        }
        for moment in _until(trial.moments(request), _ANSWER, wrong):
            if moment.answered:
                seen += 1
                given, expected = structure(moment.output), computed[moment.place]
                wrong += [f"{moment.place}: {given}, computed is {expected}"] if given != expected else []
    return Finding(wrong=wrong, of=seen, counted="answers unlike what is computed")


def runs(trial: InterceptorTrial) -> Finding:
    """Every request runs to its end with it, finite, and it sees calls."""
    wrong: list[str] = []
    for request in trial.requests:
        try:
            if not list(trial.moments(request)):
                wrong.append(f"the request has no work of its kinds, {', '.join(trial.spec.loop_kinds)}")
        except FvError as error:
            wrong += [f"{error.code}: {error.message}"] if error.code not in (_ANSWER, _CHANGED) else []
    return Finding(wrong=wrong, of=len(trial.requests), counted="requests that fail with it")


def quiet(trial: InterceptorTrial) -> Finding:
    """Its hooks print nothing: what a program prints is the caller's."""
    wrong = []
    for number, request in enumerate(trial.requests, 1):
        with redirect_stdout(io.StringIO()) as printed:
            trial.run(request)
        if text := printed.getvalue():
            wrong.append(f"request {number} prints {text[:_SHOWN]!r}")
    return Finding(wrong=wrong, of=len(trial.requests), counted="requests during which it prints")


def purity(trial: InterceptorTrial) -> Finding:
    """Its hooks leave what they get as it was, and give the same twice."""
    wrong: list[str] = []
    seen = 0
    for moment in _until(trial.moments(trial.requests[0]), _CHANGED, wrong):
        seen += 1
        wrong += _impurities(moment)
    return Finding(wrong=wrong, of=seen, counted="faults of its hooks")


def _until(moments: Iterator[Moment], code: str, wrong: list[str]) -> Iterator[Moment]:
    """The moments up to an error, which is told if it is the gate's own; `runs` tells the others."""
    try:
        yield from moments
    except FvError as error:
        wrong += [error.message] if error.code == code else []


def _impurities(moment: Moment) -> Iterator[str]:
    one, at = moment.enabled, moment.at
    hooks: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        ("initial", one.interceptor.initial, (one.params,)),
        ("before", one.interceptor.before, (moment.call, at, moment.state, one.params)),
    ]
    if not moment.answered:
        hooks.append(
            ("after", one.interceptor.after, (moment.call, at, moment.output, moment.state, one.params))
        )
    for name, hook, given in hooks:
        before = fingerprint(given)
        try:
            first, second = (fingerprint(hook(*given)) for _ in range(2))
        except Exception as error:
            yield f"{name} raised {type(error).__name__} when it was called again, {moment.place}: {error}"
            continue
        if fingerprint(given) != before:
            yield f"{name} changed what it was given, {moment.place}"
        elif first != second:
            yield f"{name} gave something else the second time, {moment.place}"
