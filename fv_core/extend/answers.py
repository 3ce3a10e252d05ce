"""Holds what interceptors answer against what was computed, and what they were given against what they leave.

Components declare no structure of their outputs, so it is learnt: calls of equal structure return equal structures.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any, TypeAlias

from torch import Tensor

from fv_core.errors import RunError
from fv_core.extend.contract import At
from fv_core.loop.work import CallOutput, ComponentCall

Structure: TypeAlias = dict[str, str]
"""Output name to its type, shape and device in words: `float32 [16, 3, 4, 4] on cpu`."""

_NONE = "no such output"


class Structures:
    """What outputs look like, by the structure of the call that they answer; one per node of a request."""

    def __init__(self) -> None:
        self._learnt: dict[Hashable, Structure] = {}

    def learn(self, call: ComponentCall, output: CallOutput) -> None:
        """Remembers what was computed."""
        self._learnt[_kind(call)] = structure(output)

    def check(self, owner: str, call: ComponentCall, at: At, answer: CallOutput) -> None:
        """Before anything like it was computed, an answer has to hold tensors, and no more is known of it.

        Raises:
            RunError: FV507, the first output whose name, type, shape or device is not as computed.
        """
        given = structure(answer)
        any_tensor = {
            name: given[name] if isinstance(value, Tensor) else "a tensor"
            for name, value in answer.tensors.items()
        }
        expected = self._learnt.get(_kind(call), any_tensor)
        for name in sorted(given.keys() | expected.keys()):
            if given.get(name) != expected.get(name):
                place = f"{call.component}.{call.op} ({at.branch}, step {at.step + 1})"
                raise RunError(
                    "FV507",
                    name=f"{owner}: output {name} of {place}",
                    value=given.get(name) or _instead(given.keys() - expected.keys()),
                    rule="is not what the component returns",
                    legal=expected.get(name, _NONE),
                    remedy="Switch it off for this engine, or report it to its author.",
                )


class Seal:
    """Notices that one of these values was replaced, or changed in place as a tensor's version counter tells."""

    def __init__(self, **given: Mapping[str, Any]) -> None:
        self._given = given
        self._before = {kind: _versions(values) for kind, values in given.items()}

    def broken(self) -> str:
        """The first value that is not as it was ("row latent"); "" for none."""
        for kind, before in self._before.items():
            after = _versions(self._given[kind])
            for name in (*before, *after):
                if before.get(name) != after.get(name):
                    return f"{kind} {name}"
        return ""


def structure(output: CallOutput) -> Structure:
    """The structure of what a call returned."""
    return {name: _words(value) for name, value in output.tensors.items()}


def _words(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)} on {value.device}"


def _instead(others: Collection[str]) -> str:
    """That an output is not there, with those that came back and nobody asked for."""
    return f"{_NONE}, but {', '.join(sorted(others))}" if others else _NONE


def _kind(call: ComponentCall) -> Hashable:
    rows = ((name, _words(row)) for name, row in sorted(call.rows.items()))
    return (call.component, call.op, tuple(sorted(call.static.items())), tuple(rows))


def _versions(values: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {name: (id(value), _version(value)) for name, value in values.items()}


def _version(value: object) -> int:
    counted = isinstance(value, Tensor) and not value.is_inference()
    return value._version if counted else 0  # type: ignore[attr-defined]
