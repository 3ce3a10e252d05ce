"""What an engine is made with: checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from fv_core.card import ModelCard, validate
from fv_core.errors import RequestError
from fv_core.memory import parse_bytes
from fv_core.runtime.instance import Offload


def valid(card: ModelCard) -> ModelCard:
    """Raises:
    CardError: the first rule that the card breaks.
    """
    for finding in validate(card):
        raise finding
    return card


def by_id(cards: Sequence[ModelCard]) -> dict[str, ModelCard]:
    """Raises:
    RequestError: FV310, two cards have one id.
    """
    by_id = {card.model_id: card for card in cards}
    for model_id in by_id:
        if sum(card.model_id == model_id for card in cards) > 1:
            raise RequestError(
                "FV310",
                name="models",
                value=model_id,
                rule="is named more than once",
                legal="every model once",
                remedy="Give derived cards ids of their own: derive(card, model_id=...).",
            )
    return by_id


def checked_weights(weights: str | Path | None, cards: Sequence[ModelCard]) -> Path | None:
    """Raises:
    RequestError: FV310, a folder is given and the engine is not for one model.
    """
    if weights is not None and len(cards) != 1:
        raise RequestError(
            "FV310",
            name="weights",
            value=str(weights),
            rule=f"is the folder of one model, and this engine names {len(cards)}",
            legal="an engine of one model",
            remedy="Make one engine per folder, or leave weights out to have them found.",
        )
    return None if weights is None else Path(weights)


def checked_memory(memory: int | str | None) -> int | None:
    """Bytes of the device to use at most; None: all that it has.

    Raises:
        RequestError: FV312, no size of memory.
    """
    return None if memory is None else parse_bytes(memory)


def checked_offload(offload: str, device: torch.device) -> str:
    """Raises:
    RequestError: FV312, no way to offload, or none on this device.
    """
    legal = ("auto", "none") if device.type == "cpu" else ("auto", "none", "component")
    if offload not in legal:
        raise RequestError(
            "FV312",
            name="offload",
            value=offload,
            rule="moves weights between host memory and an accelerator, and there is none"
            if offload == Offload.COMPONENT
            else "is not a way to offload",
            legal=", ".join(legal),
            remedy="Leave it at auto.",
        )
    return offload
