"""A file of settings to begin from: every key that there is, those that have a default as comments."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from fv_core.plugins.reference import resolve_reference
from fv_core.training.config import DataTable, LoraTable, SaveTable, TrainTable, ValidateTable
from fv_core.training.offered import find_method
from fv_core.training.setup import source_module


def template(method: str, *, model: str, source: str) -> str:
    """A TOML file that trains `model` by `method` on a kind of data, to be filled in.

    Raises:
        TrainError: FV701, there is no such method or kind of data.
    """
    config = resolve_reference(find_method(method).factory, owner=f"method {method}").Config
    tables: dict[str, tuple[type, Mapping[str, object]]] = {
        "method": (config, {"name": method}),
        "data": (source_module(source).Config, {"name": source}),
        "train": (TrainTable, {}),
        "save": (SaveTable, {"dir": f"runs/{method}"}),
        "validate": (ValidateTable, {}),
    }
    lines = [f"model = {_toml(model)}", '# weights = "seed"  # begin as the model is initialised']
    lines.append('# log = ["tensorboard"]  # figures for TensorBoard too')
    for name, (kind, given) in tables.items():
        lines += ["", f"[{name}]", *_table(kind, given)]
        if name == "data":
            lines += [line for line in _table(DataTable, {"name": source}) if not line.startswith("name")]
    lines += ["", "# [lora]  # in place of whole layers", *_table(LoraTable, {})]
    return "\n".join(lines) + "\n"


def _table(kind: Any, given: Mapping[str, object]) -> Iterator[str]:
    """The keys of a table: those that are given, those to be filled in, and the defaults as comments."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name, value in given.items():
        yield f"{name} = {_toml(value)}"
    for name, field in fields.items():
        if name in given:
            continue
        if field.default_factory is not dataclasses.MISSING:
            yield f"# {name} = {_toml(field.default_factory())}"
        elif field.default is dataclasses.MISSING:
            yield f'{name} = ""  # to be filled in'
        elif field.default is None:
            yield f"# {name} =  # the model's own"
        else:
            yield f"# {name} = {_toml(field.default)}"


def _toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Enum():
            return json.dumps(value.value)
        case str() | int() | float():
            return json.dumps(value)
        case tuple() | list():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    raise TypeError(f"{type(value).__name__} is no value of TOML")
