"""The published autoencoder's names for what diffusers' `AutoencoderKL` holds."""

from __future__ import annotations

import re
from typing import Final

from torch import nn

_RULES: Final = (
    (r"down_blocks\.(\d+)\.resnets\.(\d+)", r"down.\1.block.\2"),
    (r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample"),
    (r"mid_block\.resnets\.0", r"mid.block_1"),
    (r"mid_block\.resnets\.1", r"mid.block_2"),
    (r"mid_block\.attentions\.0\.group_norm", r"mid.attn_1.norm"),
    (r"mid_block\.attentions\.0\.to_out\.0", r"mid.attn_1.proj_out"),
    (r"mid_block\.attentions\.0\.to_([qkv])", r"mid.attn_1.\1"),
    (r"conv_shortcut", r"nin_shortcut"),
    (r"conv_norm_out", r"norm_out"),
)


def published(module: nn.Module) -> dict[str, str]:
    """Every tensor's name in the module to its name in `ae.safetensors`, whose decoder counts its levels upwards."""
    names = tuple(module.state_dict())
    levels = 1 + max(int(found.group(1)) for name in names if (found := re.search(r"up_blocks\.(\d+)", name)))
    return {name: _published(name, levels) for name in names}


def _published(name: str, levels: int) -> str:
    for pattern, replacement in _RULES:
        name = re.sub(pattern, replacement, name)
    if found := re.match(r"decoder\.up_blocks\.(\d+)\.(resnets\.|upsamplers\.0)(.*)", name):
        level, part, rest = levels - 1 - int(found.group(1)), found.group(2), found.group(3)
        return f"decoder.up.{level}.{'block.' if part == 'resnets.' else 'upsample'}{rest}"
    return name
