"""Forms of option values. Only the form is judged here; what is legal the card says, in one place for every client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import click

from fv_core.card import ModelCard, ParamRule
from fv_core.errors import RequestError
from fv_core.memory import parse_bytes
from fv_core.request import Adapter


class Whole(click.IntRange):
    """A whole number within limits, named in words: click's own says "integer range"."""

    name = "whole number"


def size(text: str) -> tuple[int, int]:
    """`832x480` as (832, 480)."""
    sides = re.fullmatch(r"(-?\d+)x(-?\d+)", text.strip().lower())
    if sides is None:
        raise click.BadParameter(f"{text!r} is not of the form WIDTHxHEIGHT, such as 832x480.")
    try:
        return int(sides[1]), int(sides[2])
    except ValueError:  # Python reads no numbers of thousands of digits
        raise click.BadParameter("sides have too many digits.") from None


def number(given: str | float) -> int | float:
    """A whole number as int, any other as float, nan and inf included."""
    if not isinstance(given, str):
        return given
    for kind in (int, float):
        try:
            return kind(given)
        except ValueError:
            continue
    raise click.BadParameter(f"{given!r} is not a number.")


def real(given: str | float) -> float:
    """A number as float, nan and inf included."""
    try:
        return float(given)
    except (OverflowError, ValueError):
        raise click.BadParameter(f"{given!r} is not a number.") from None


def rate(given: str | float) -> float:
    """`23.976` or `24000/1001` in frames per second."""
    above, stroke, below = str(given).partition("/")
    if not stroke:
        return real(given)
    try:
        return float(Fraction(int(above), int(below)))
    except (OverflowError, ValueError, ZeroDivisionError):
        raise click.BadParameter(f"{given!r} is not a rate, such as 16, 23.976 or 30000/1001.") from None


def memory(given: str | int) -> int:
    """`8GiB`, or a number of bytes, as bytes."""
    try:
        return parse_bytes(given)
    except RequestError as error:
        raise click.BadParameter(f"{given!r} {error.rule} (legal: {error.legal}).") from None


def adapter(text: str) -> Adapter:
    """`FILE` or `FILE:0.8`, a LoRA and its scale; what follows the last colon is the scale if it is a number."""
    path, colon, scale = text.rpartition(":")
    if not text or (colon and not path):
        raise _no_adapter(text, "names no file")
    if not colon:
        return Adapter(path=text)
    try:
        return Adapter(path=path, scale=float(scale))
    except ValueError:
        if Path(path).exists() and not Path(text).exists():
            raise _no_adapter(text, f"{scale!r} is no scale") from None
        return Adapter(path=text)


def _no_adapter(text: str, rule: str) -> click.BadParameter:
    told = f"{text!r}: {rule}; the form is PATH[:SCALE], such as style.safetensors:0.8."
    return click.BadParameter(told, param_hint="'--lora'")


def settings(given: Sequence[str], card: ModelCard) -> dict[str, float | int | str | bool]:
    """`--set K=V` options as request parameters: of the kind that the card's rule says, or as text.

    Raises:
        click.BadParameter: one is not of the form, or a name is given twice.
    """
    found: dict[str, float | int | str | bool] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE.", param_hint="'--set'")
        if name in found:
            raise click.BadParameter(f"{name} is given twice.", param_hint="'--set'")
        found[name] = _read(value, card.params.get(name))
    return found


def _read(value: str, rule: ParamRule | None) -> float | int | str | bool:
    if rule is None or rule.choices:
        return value
    if rule.yes_or_no:
        return {"true": True, "false": False}.get(value, value)
    try:
        return int(value) if rule.whole else float(value)
    except ValueError:
        return value  # the card says what would be legal
