"""The official pickle's names and those of diffusers' Wan transformer, which have the same shapes one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from torch import Tensor

from fv_core.errors import WeightsError
from fv_wan_causal.official import BLOCK_NAMES, NAMES

_SECTIONS: Final = ("generator_ema", "generator")
_PREFIX: Final = "model."

_BLOCK: Final = re.compile(r"blocks\.(\d+)\.(.+)")


def transformer(contents: object) -> dict[str, Tensor]:
    """The transformer's tensors by diffusers' names; the averaged weights where the file has both.

    Raises:
        WeightsError: FV254, the contents are not those of the official file, or hold a tensor of another name.
    """
    found: dict[str, Tensor] = {}
    unknown: list[str] = []
    for key, tensor in _section(contents).items():
        name = diffusers_name(key)
        if name is None or not isinstance(tensor, Tensor):
            unknown.append(key)
        else:
            found[name] = tensor
    if unknown:
        raise _other(
            f"holds {len(unknown)} entries that the transformer has no name for: {min(unknown)}, ..."
        )
    return found


def diffusers_name(key: str) -> str | None:
    """The name of an official tensor ("model.blocks.0.ffn.0.weight") in diffusers; None: there is none."""
    if not key.startswith(_PREFIX):
        return None
    key = key.removeprefix(_PREFIX)
    if key.endswith("modulation"):
        stem, leaf = key, ""
    else:
        stem, _, leaf = key.rpartition(".")
        leaf = f".{leaf}"
    if block := _BLOCK.fullmatch(stem):
        name = BLOCK_NAMES.get(block[2])
        return None if name is None else f"blocks.{block[1]}.{name}{leaf}"
    name = NAMES.get(stem)
    return None if name is None else f"{name}{leaf}"


def _section(contents: object) -> Mapping[str, object]:
    for section in _SECTIONS:
        if isinstance(contents, Mapping) and isinstance(found := contents.get(section), Mapping):
            return found
    raise _other(f"has no section {' or '.join(_SECTIONS)}")


def _other(rule: str) -> WeightsError:
    return WeightsError(
        "FV254",
        name="file to convert",
        rule=rule,
        remedy="Give the official Self-Forcing checkpoint.",
    )
