"""What an engine is made with: checked before anything is loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from fv_core.cache.pool import POOLS
from fv_core.card import ModelCard, validate
from fv_core.errors import RequestError
from fv_core.memory import parse_bytes
from fv_core.request import Priority, Request
from fv_core.runtime.device import total_bytes
from fv_core.runtime.gain import Gain, Measured
from fv_core.runtime.instance import Offload

_SHARES: Final = {"stream": 1, "slab_kv": 1, "paged_kv": 4, "text_kv": 4, "feature": 16}
"""The default budget of each pool is the device's memory divided by this. The first two hold only what requests at work
need, which memory itself bounds; the others also keep what later requests may ask for again.
"""

_KEEPS_RESULTS: Final = "feature"
"""The pool without which every request runs all the same."""


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
    RequestError: FV310, no folder, or one is given and the engine is not for one model.
    """
    if weights is not None and not isinstance(weights, (str, Path)):
        raise _illegal("weights", weights, "is no path", "the folder of a model's weights")
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


def checked_models(given: object) -> tuple[str | ModelCard, ...]:
    """One model or several as several.

    Raises:
        RequestError: FV310, something is neither a model's id nor a card.
    """
    models = (
        (given,) if isinstance(given, (str, ModelCard)) or not isinstance(given, Iterable) else tuple(given)
    )
    for model in models:
        if not isinstance(model, (str, ModelCard)):
            raise _illegal("models", model, "is no model", "ids of installed cards, or cards")
    return models


def checked_request(name: str, given: object) -> Request:
    """Raises:
    RequestError: FV310, it is something else.
    """
    if not isinstance(given, Request):
        raise RequestError(
            "FV310",
            name=name,
            rule=f"is of type {type(given).__name__} and no request",
            legal="a Request",
            remedy='Give Request(prompt="...").',
        )
    return given


def checked_requests(given: object) -> tuple[Request, ...]:
    """Raises:
    RequestError: FV310, not several requests: refused before the first of them starts.
    """
    if isinstance(given, (Request, str)) or not isinstance(given, Iterable):
        raise RequestError(
            "FV310",
            name="requests",
            rule=f"are of type {type(given).__name__} and not several requests",
            legal="a sequence of Request",
            remedy="Give [request], or run one with `run`.",
        )
    return tuple(checked_request(f"requests[{index}]", one) for index, one in enumerate(given))


def checked_flag(name: str, given: bool) -> bool:
    """Raises:
    RequestError: FV310, neither True nor False.
    """
    if not isinstance(given, bool):
        raise _illegal(name, given, "is neither yes nor no", "True, False")
    return given


def checked_memory(memory: int | str | None) -> int | None:
    """Bytes of the device to use at most; None: all that it has.

    Raises:
        RequestError: FV312, no size of memory.
    """
    return None if memory is None else parse_bytes(memory)


def checked_bytes(name: str, given: int | str) -> int:
    """A number of bytes, or a size such as "1GiB", as bytes.

    Raises:
        RequestError: FV310, neither.
    """
    if type(given) is int and given >= 0:
        return given
    try:
        if isinstance(given, str):
            return parse_bytes(given)
    except RequestError as error:
        raise _no_bytes(name, given) from error
    raise _no_bytes(name, given)


def _no_bytes(name: str, given: object) -> RequestError:
    legal = "a whole number of bytes from 0 up, or a size such as 512MiB or 1GiB"
    return _illegal(name, given, "is no number of bytes", legal)


def checked_count(name: str, given: int) -> int:
    """Raises:
    RequestError: FV310, not a count of at least one.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise _illegal(name, given, "is no count", "a whole number from 1 up")
    return given


def checked_gain(given: Gain | None, device: torch.device) -> Gain:
    """What decides which calls share a forward; None: it is measured.

    Raises:
        RequestError: FV310, it is none.
    """
    if given is None:
        return Measured(device)
    if isinstance(given, type) or not isinstance(given, Gain):
        raise _illegal(
            "gain", given, "does not decide what joins", "an object such as fv_core.runtime.gain.Always()"
        )
    return given


def checked_seconds(name: str, given: float) -> float:
    """Raises:
    RequestError: FV310, not a number of seconds.
    """
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= sys.float_info.max:
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
    ways = ("auto", *Offload)
    legal = tuple(way for way in ways if way != Offload.COMPONENT or device.type != "cpu")
    if offload not in legal:
        raise RequestError(
            "FV312",
            name="offload",
            value=offload,
            rule="moves weights between host memory and an accelerator, and there is none"
            if offload == Offload.COMPONENT
            else "is not a way to offload",
            legal=", ".join(legal if offload == Offload.COMPONENT else ways),
            remedy="Leave it at auto.",
        )
    return offload


def cache_budgets(
    given: Mapping[str, int | str] | None, device: torch.device, memory: int | None
) -> dict[str, int]:
    """The most bytes of each pool, the defaults where `given` says nothing.

    Args:
        given: by pool, numbers of bytes or sizes such as "1GiB".
        memory: most bytes of the device to use; None: all that it has.

    Raises:
        RequestError: FV310, no pool of caches, or no number of bytes.
    """
    given = {} if given is None else given
    legal = ", ".join(POOLS)
    if not isinstance(given, Mapping):
        raise _illegal("cache_bytes", given, "is no mapping from pools to bytes", f"bytes of {legal}")
    for name, most in given.items():
        if name not in POOLS:
            raise _illegal(f"cache_bytes of {name}", most, "is of no pool of caches", f"bytes of {legal}")
    total = total_bytes(device)
    usable = total if memory is None else min(memory, total)
    # What requests at work need is cut by the memory alone: a smaller share of it would refuse what fits.
    budgets = {name: min(total // share, usable) for name, share in _SHARES.items()}
    budgets[_KEEPS_RESULTS] = usable // _SHARES[_KEEPS_RESULTS]
    return budgets | {name: checked_bytes(f"cache_bytes of {name}", most) for name, most in given.items()}
