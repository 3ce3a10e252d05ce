"""How three velocities become one: guided by text, then by image, and brought back to the length of the first.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `Bagel._forward_flow`.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

_TINY = 1e-8


class Renorm(StrEnum):
    """What is brought back to its length before guidance.

    global: all tokens of one image together, after both guidances. channel: each token, after both. text_channel:
    each token, between the guidance by text and that by image.
    """

    GLOBAL = "global"
    CHANNEL = "channel"
    TEXT_CHANNEL = "text_channel"


def guided(
    velocity: Tensor,
    no_text: Tensor,
    no_image: Tensor | None,
    *,
    text_scale: float,
    image_scale: float,
    renorm: Renorm,
    renorm_min: float,
) -> Tensor:
    """Velocities [N, C] of one image under each context to the guided one.

    Args:
        no_image: None leaves the guidance by image out.
        renorm_min: the least factor, in [0, 1]; 1 leaves lengths as they come.
    """
    by_text = no_text + text_scale * (velocity - no_text)
    if renorm is Renorm.TEXT_CHANNEL:
        by_text = by_text * _factor(velocity, by_text, renorm_min, each=True)
    whole = by_text if no_image is None else no_image + image_scale * (by_text - no_image)
    if renorm is Renorm.TEXT_CHANNEL:
        return whole
    return whole * _factor(velocity, whole, renorm_min, each=renorm is Renorm.CHANNEL)


def _factor(before: Tensor, after: Tensor, least: float, *, each: bool) -> Tensor:
    return (_length(before, each) / (_length(after, each) + _TINY)).clamp(min=least, max=1.0)


def _length(velocity: Tensor, each: bool) -> Tensor:
    # In fp32 at any precision, as the reference's autocast has it.
    rows = velocity.float()
    length: Tensor = torch.norm(rows, dim=-1, keepdim=True) if each else torch.norm(rows)
    return length
