"""Compares the headers of a checkpoint with a module, then moves the tensors into it one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from fv_core.weights.layout import Shards, mismatch, named
from fv_core.weights.safetensors_header import TensorHeader, damaged

Settle: TypeAlias = Callable[[str, torch.Tensor], torch.Tensor]
"""From a tensor's name and value to the tensor to keep: cast, moved, in memory of its own."""


def check(module: nn.Module, shards: Shards, aliases: Mapping[str, str]) -> None:
    """Every tensor of the module is in `shards` (aliases may be absent), none is unexpected, shapes and kinds agree.

    Raises:
        WeightsError: FV254.
    """
    state = module.state_dict(keep_vars=True)
    expected = {name: value for name, value in state.items() if torch.is_tensor(value)}
    if absent := expected.keys() - shards.headers.keys() - aliases.keys():
        raise mismatch(shards.source, f"{len(absent)} tensors of the model are missing: {named(absent)}")
    if unexpected := shards.headers.keys() - expected.keys():
        raise mismatch(shards.source, f"{len(unexpected)} tensors are unexpected: {named(unexpected)}")
    for name, header in shards.headers.items():
        if fault := _difference(header, expected[name]):
            raise mismatch(shards.files[name], f"tensor {shards.stored.get(name, name)} {fault}")


def load(module: nn.Module, shards: Shards, aliases: Mapping[str, str], settle: Settle) -> None:
    """Puts every tensor of checked `shards` into `module`. No more than one tensor is held twice at a time.

    Raises:
        WeightsError: FV253 a file cannot be read, FV254 an alias differs from the tensor it stands for.
    """
    for alias, target in aliases.items():
        if alias in shards.headers and not torch.equal(_read_one(shards, alias), _read_one(shards, target)):
            raise mismatch(shards.files[alias], f"tensor {alias} differs from {target}, which it must equal")
    for path, names in _by_file(shards, skip=aliases).items():
        for name, tensor in _read(shards, path, names):
            place(module, name, settle(name, tensor))


def outline(module: nn.Module, aliases: Mapping[str, str], settle: Settle) -> None:
    """Puts into `module` what `settle` makes of its own tensors: as `load`, without a value of any file."""
    for name, tensor in module.state_dict(keep_vars=True).items():
        if torch.is_tensor(tensor) and name not in aliases:
            place(module, name, settle(name, tensor))


def tie(module: nn.Module, aliases: Mapping[str, str]) -> None:
    """Makes each alias the same parameter object as its target."""
    for alias, target in aliases.items():
        owner, _, leaf = alias.rpartition(".")
        setattr(module.get_submodule(owner), leaf, module.get_parameter(target))


def place(module: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Replaces the parameter or buffer called `name`."""
    owner, _, leaf = name.rpartition(".")
    parent = module.get_submodule(owner)
    is_parameter = isinstance(getattr(parent, leaf), nn.Parameter)
    setattr(parent, leaf, nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor)


def _difference(header: TensorHeader, tensor: torch.Tensor) -> str:
    if header.shape != tuple(tensor.shape):
        return f"has shape {list(header.shape)}, the model has {list(tensor.shape)}"
    if header.floating != tensor.is_floating_point():
        return f"is {header.dtype}, the model has {str(tensor.dtype).removeprefix('torch.')}"
    return ""


def _by_file(shards: Shards, skip: Mapping[str, str]) -> dict[Path, list[str]]:
    names: defaultdict[Path, list[str]] = defaultdict(list)
    for name, path in shards.files.items():
        if name not in skip:
            names[path].append(name)
    return names


def _read_one(shards: Shards, name: str) -> torch.Tensor:
    return next(tensor for _, tensor in _read(shards, shards.files[name], [name]))


def _read(shards: Shards, path: Path, names: Sequence[str]) -> Iterable[tuple[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in names:
                yield name, file.get_tensor(shards.stored.get(name, name))
    except (SafetensorError, OSError) as error:
        raise damaged(path, f"the file cannot be read ({error})") from error
