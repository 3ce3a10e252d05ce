"""The official pickle's names and those of diffusers' Wan transformer, which have the same shapes one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from torch import Tensor

from fv_core.errors import WeightsError

_SECTIONS: Final = ("generator_ema", "generator")
_PREFIX: Final = "model."

_NAMES: Final = {
    "patch_embedding": "patch_embedding",
    "time_embedding.0": "condition_embedder.time_embedder.linear_1",
    "time_embedding.2": "condition_embedder.time_embedder.linear_2",
    "time_projection.1": "condition_embedder.time_proj",
    "text_embedding.0": "condition_embedder.text_embedder.linear_1",
    "text_embedding.2": "condition_embedder.text_embedder.linear_2",
    "head.head": "proj_out",
    "head.modulation": "scale_shift_table",
}
_BLOCK_NAMES: Final = {
    "self_attn.q": "attn1.to_q",
    "self_attn.k": "attn1.to_k",
    "self_attn.v": "attn1.to_v",
    "self_attn.o": "attn1.to_out.0",
    "self_attn.norm_q": "attn1.norm_q",
    "self_attn.norm_k": "attn1.norm_k",
    "cross_attn.q": "attn2.to_q",
    "cross_attn.k": "attn2.to_k",
    "cross_attn.v": "attn2.to_v",
    "cross_attn.o": "attn2.to_out.0",
    "cross_attn.norm_q": "attn2.norm_q",
    "cross_attn.norm_k": "attn2.norm_k",
    "norm3": "norm2",  # the one with weights; its number differs
    "ffn.0": "ffn.net.0.proj",
    "ffn.2": "ffn.net.2",
    "modulation": "scale_shift_table",
}
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
        name = _BLOCK_NAMES.get(block[2])
        return None if name is None else f"blocks.{block[1]}.{name}{leaf}"
    name = _NAMES.get(stem)
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
