"""What an engine is made with: checked before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from fv_core.cache.pool import POOLS
from fv_core.card import ModelCard, validate
from fv_core.errors import RequestError
from fv_core.memory import parse_bytes
from fv_core.request import Priority
from fv_core.runtime.device import total_bytes
from fv_core.runtime.instance import Offload

_SHARES: Final = {"stream": 1, "slab_kv": 1, "paged_kv": 4, "text_kv": 4, "feature": 16}
"""The default budget of each pool is the device's memory divided by this. The first two hold only what requests at work
need, which memory itself bounds; the others also keep what later requests may ask for again.
"""


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


def checked_bytes(name: str, given: int) -> int:
    """Raises:
    RequestError: FV310, not a number of bytes.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise _illegal(name, given, "is no number of bytes", "a whole number from 0 up")
    return given


def checked_count(name: str, given: int) -> int:
    """Raises:
    RequestError: FV310, not a count of at least one.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise _illegal(name, given, "is no count", "a whole number from 1 up")
    return given


def checked_seconds(name: str, given: float) -> float:
    """Raises:
    RequestError: FV310, not a number of seconds.
    """
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < math.inf:
        raise _illegal(name, given, "is no number of seconds", "a finite number from 0 up")
    return float(given)


def checked_priority(given: str) -> Priority:
    """Raises:
    RequestError: FV310, there is no such class.
    """
    if given not in tuple(Priority):
        raise _illegal("priority", given, "is no class of urgency", ", ".join(Priority))
    return Priority(given)


def _illegal(name: str, value: object, rule: str, legal: str) -> RequestError:
    return RequestError(
        "FV310", name=name, value=value, rule=rule, legal=legal, remedy="Leave it out for the default."
    )


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


def cache_budgets(given: Mapping[str, int] | None, device: torch.device) -> dict[str, int]:
    """The most bytes of each pool, the defaults where `given` says nothing.

    Raises:
        RequestError: FV310, no pool of caches, or no number of bytes.
    """
    for name, most in (given or {}).items():
        if name not in POOLS or type(most) is not int or most < 0:
            raise RequestError(
                "FV310",
                name=f"cache_bytes of {name}",
                value=most,
                rule="is no number of bytes" if name in POOLS else "is of no pool of caches",
                legal=f"whole numbers from 0 up, of {', '.join(POOLS)}",
                remedy="Leave it out for the default, a share of the device's memory.",
            )
    total = total_bytes(device)
    return {name: total // share for name, share in _SHARES.items()} | dict(given or {})
