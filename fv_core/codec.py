"""Typed JSON: frozen dataclasses to plain JSON and back, guided by annotations alone.

Nothing in a file ever names the class to build: the reader says which type it expects, so a file from outside can
only yield values of the declared types. Cards, requests, sidecars and snapshots share this codec; tensors and
bytes go through the caller's `Leaves`, so the codec itself needs no torch. A field with a default may be absent, and
digests leave it out where it has that default: a new one changes nothing that was written or digested before.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import sys
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar, cast

JSON: TypeAlias = "None | bool | int | float | str | list[JSON] | dict[str, JSON]"
T = TypeVar("T")

_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Leaves(Protocol):
    """Stores the values that JSON cannot hold. `names` resolves annotations that a torch-free module only quotes."""

    @property
    def names(self) -> Mapping[str, type]: ...

    def encode(self, value: object) -> JSON: ...
    def decode(self, kind: type, stored: JSON) -> object: ...


class DecodeError(ValueError):
    """The JSON does not have the shape of the expected type."""


def encode(value: object, leaves: Leaves | None = None) -> JSON:
    """`value` as plain JSON; floats keep every bit.

    Raises:
        TypeError: a value of a type that the codec and `leaves` do not know.
    """
    match value:
        case Enum():
            return cast(JSON, value.value)
        case None | bool() | int() | str():
            return value
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case tuple() | list():
            return [encode(item, leaves) for item in value]
        case Mapping():
            return {str(_key(key)): encode(item, leaves) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: encode(getattr(value, f.name), leaves) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if leaves is not None:
        return leaves.encode(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def sparse(value: object) -> JSON:
    """`value` as `encode` has it, without the fields that have their declared default; `decode` fills them in.

    A default must therefore never change its meaning: a new meaning is a new field.
    """
    if isinstance(value, (tuple, list)):
        return [sparse(item) for item in value]
    if isinstance(value, Mapping):
        return {str(_key(key)): sparse(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: sparse(getattr(value, field.name)) for field in dataclasses.fields(value)}
        defaults = _defaults(type(value))
        told = {name: item for name, item in fields.items() if canonical(item) != defaults.get(name)}
        return {"type": type(value).__name__, **told}
    return encode(value)


def canonical(stored: JSON) -> str:
    """The one text of plain JSON: sorted keys, no spaces, ASCII. It tells 1 from 1.0 and from true."""
    return json.dumps(stored, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: object) -> str:
    """sha256 of the sparse, canonical JSON, in hex: equal digests are equal values."""
    return hashlib.sha256(canonical(sparse(value)).encode()).hexdigest()


def decode(kind: type[T], stored: JSON, leaves: Leaves | None = None) -> T:
    """The value of type `kind` that `encode` wrote as `stored`.

    Raises:
        DecodeError: `stored` is not a `kind`: unknown fields, absent ones without a default, wrong types.
    """
    return cast(T, _decode(kind, stored, leaves))


def _key(key: object) -> object:
    return key.value if isinstance(key, Enum) else key


@cache
def _defaults(kind: type) -> dict[str, str]:
    """The canonical text of every field that has a default."""
    return {
        field.name: canonical(sparse(_default(field)))
        for field in dataclasses.fields(kind)
        if not _is_required(field)
    }


def _default(field: dataclasses.Field[Any]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@cache
def field_types(kind: Any, names: tuple[tuple[str, type], ...] = ()) -> dict[str, Any]:
    """The resolved annotations of a dataclass, by field name."""
    hints = typing.get_type_hints(kind, localns=dict(names))
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _decode(kind: Any, stored: JSON, leaves: Leaves | None) -> object:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), stored, leaves)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), stored, leaves)
    if origin is not None and issubclass(origin, Mapping):
        return _decode_mapping(typing.get_args(kind), stored, leaves)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(cast(type, kind), stored, leaves)
    return _decode_scalar(kind, stored, leaves)


def _decode_scalar(kind: Any, stored: JSON, leaves: Leaves | None) -> object:
    if kind in (Any, object):
        return _plain(stored)
    if kind in (None, type(None)):
        return _expect(stored is None, None, kind, stored)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(stored)
        except ValueError as error:
            raise DecodeError(str(error)) from error
    if kind is float:
        if (special := _not_finite(stored)) is not None:
            return special
        return _expect(_fits_float(stored), stored, kind, stored)
    if kind is int:
        return _expect(isinstance(stored, int) and not isinstance(stored, bool), stored, kind, stored)
    if kind is bytes:
        return _bytes(stored)
    if kind in (bool, str):
        return _expect(isinstance(stored, kind), stored, kind, stored)
    if leaves is not None and isinstance(kind, type):
        return leaves.decode(kind, stored)
    raise DecodeError(f"{kind!r} has no JSON form")


def _fits_float(stored: JSON) -> bool:
    """JSON may write a float as an integer, and one with more digits than any float."""
    if isinstance(stored, int) and not isinstance(stored, bool):
        return abs(stored) <= sys.float_info.max
    return isinstance(stored, float)


def _not_finite(stored: JSON) -> float | None:
    """The float that `encode` could not leave to JSON; None for everything else."""
    if isinstance(stored, dict) and stored.keys() == {"float"}:
        return _NOT_FINITE.get(str(stored["float"]))
    return None


def _bytes(stored: JSON) -> bytes:
    try:
        return base64.b64decode(cast(dict[str, str], stored)["base64"], validate=True)
    except (TypeError, KeyError, ValueError) as error:
        raise DecodeError(f"expected bytes, got {stored!r}") from error


def _plain(stored: JSON) -> object:
    """Plain JSON as it was before `encode`: only its floats may need to be brought back."""
    if (special := _not_finite(stored)) is not None:
        return special
    if isinstance(stored, list):
        return [_plain(item) for item in stored]
    if isinstance(stored, dict):
        return {key: _plain(item) for key, item in stored.items()}
    return stored


def _expect(right: bool, value: object, kind: Any, stored: JSON) -> object:
    if not right:
        raise DecodeError(f"expected {getattr(kind, '__name__', kind)}, got {stored!r}")
    return value


def _decode_union(options: tuple[Any, ...], stored: JSON, leaves: Leaves | None) -> object:
    if stored is None and type(None) in options:
        return None
    failures = []
    for option in options:
        if option is type(None):
            continue
        try:
            return _decode(option, stored, leaves)
        except DecodeError as error:
            failures.append(str(error))
    raise DecodeError("; ".join(failures))


def _decode_tuple(args: tuple[Any, ...], stored: JSON, leaves: Leaves | None) -> tuple[object, ...]:
    if not isinstance(stored, list):
        raise DecodeError(f"expected a list, got {stored!r}")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_decode(args[0], item, leaves) for item in stored)
    if len(args) != len(stored):
        raise DecodeError(f"expected {len(args)} items, got {len(stored)}")
    return tuple(_decode(arg, item, leaves) for arg, item in zip(args, stored, strict=True))


def _decode_mapping(args: tuple[Any, ...], stored: JSON, leaves: Leaves | None) -> dict[object, object]:
    if not isinstance(stored, dict):
        raise DecodeError(f"expected an object, got {stored!r}")
    key, item = args
    return {_decode(key, k, leaves): _decode(item, v, leaves) for k, v in stored.items()}


def _decode_dataclass(kind: type, stored: JSON, leaves: Leaves | None) -> object:
    if not isinstance(stored, dict) or stored.get("type") != kind.__name__:
        raise DecodeError(f"expected a {kind.__name__}, got {stored!r}")
    fields = {f.name: f for f in dataclasses.fields(kind)}
    unknown = set(stored) - set(fields) - {"type"}
    missing = {name for name, field in fields.items() if _is_required(field)} - set(stored)
    if unknown or missing:
        raise DecodeError(f"{kind.__name__}: unknown {sorted(unknown)}, missing {sorted(missing)}")
    hints = field_types(kind, () if leaves is None else tuple(leaves.names.items()))
    return kind(**{name: _decode(hints[name], stored[name], leaves) for name in fields if name in stored})
