"""Guidance in data space: each term is a difference of data predictions, added to the conditional one.

Source: diffusers 0.42.1, `LTX2Pipeline.__call__`, bit-equal to it, which is why operations keep its order. Papers:
classifier-free guidance, arXiv 2207.12598; spatio-temporal skip guidance (STG), arXiv 2411.18664; rescaling, arXiv
2305.08891. Modality isolation compares with a pass in which video and audio do not see each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor

UNCOND: Final = "uncond"
COND: Final = "cond"
SKIPPED: Final = "skipped"
ISOLATED: Final = "isolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """How much of each term one modality gets.

    Args:
        cfg: against the negative prompt, >= 1; 1 is off.
        stg: against the pass with a block's self-attention skipped, >= 0; 0 is off.
        modality: against the pass with isolated modalities, >= 1; 1 is off.
        rescale: how far the spread of the guided prediction is brought back to the conditional one's, in [0, 1].
    """

    cfg: float = 1.0
    stg: float = 0.0
    modality: float = 1.0
    rescale: float = 0.0


def branches(video: Scales, audio: Scales) -> tuple[str, ...]:
    """The passes of a step in the order they are computed. One that either modality needs is made for both."""
    return (
        *((UNCOND,) if max(video.cfg, audio.cfg) > 1 else ()),
        COND,
        *((SKIPPED,) if max(video.stg, audio.stg) > 0 else ()),
        *((ISOLATED,) if max(video.modality, audio.modality) > 1 else ()),
    )


def combine(x0: Mapping[str, Tensor], scales: Scales) -> Tensor:
    """The guided data prediction of one modality.

    Args:
        x0: data predictions by branch, fp32 [tokens, channels]; `COND` is always there.
    """
    cond = x0[COND]
    terms = {UNCOND: scales.cfg - 1, SKIPPED: scales.stg, ISOLATED: scales.modality - 1}
    guided = cond
    for branch, scale in terms.items():
        if branch in x0:
            guided = guided + scale * (cond - x0[branch])
    return _rescaled(guided, cond, scales.rescale) if scales.rescale > 0 else guided


def _rescaled(guided: Tensor, cond: Tensor, amount: float) -> Tensor:
    like_cond = guided * (cond.std() / guided.std())
    return amount * like_cond + (1 - amount) * guided
