"""One call from a prompt to a clip, for people who need no engine of their own."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from fv_core.card import ModelCard
from fv_core.media import Clip
from fv_core.plugins import find_card
from fv_core.request import Request
from fv_core.runtime.engine import Engine
from fv_core.runtime.models import default_model

_KEYWORDS = frozenset(field.name for field in fields(Request))
_RESIDENT_ENGINES = 2
_ONE_AT_A_TIME = Lock()


def generate(
    prompt: str,
    *,
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    weights: str | Path | None = None,
    **request: Any,
) -> Clip:
    """The clip of one prompt; keyword arguments are the fields of `Request`.

    The engine stays resident, so the next clip of the same model starts at once. Without `model` the default is
    `wan21/tiny`, else the only installed card that needs no download.

    Raises:
        FvError: whatever refused or ended the request.
        TypeError: a keyword that is no field of `Request`.
    """
    card = default_model() if model is None else find_card(model)
    if unknown := [name for name in request if name not in _KEYWORDS]:
        raise TypeError(
            f"generate() got an unexpected keyword {_meant(unknown[0], request[unknown[0]], card)}"
        )
    model_id = card.model_id
    engine = _engine(model_id, device, dtype, None if weights is None else str(weights))
    with _ONE_AT_A_TIME:  # one thread drives an engine, and threads that share a process share this one
        return engine.run(Request(prompt=prompt, model=model_id, **request))


def _meant(name: str, value: object, card: ModelCard) -> str:
    """The unknown keyword, and the one, or the parameter of the card, that it may have been."""
    if name in card.params:
        return f"'{name}', a parameter of {card.model_id}: use params={{'{name}': {value!r}}}"
    own = (*_KEYWORDS, "device", "dtype", "weights")
    for close in get_close_matches(name, (*own, *card.params), n=1):
        return f"'{name}'; did you mean {close if close in own else f'params={{{close!r}: {value!r}}}'}?"
    return f"'{name}'; it takes {', '.join(sorted(own))}"


@lru_cache(maxsize=_RESIDENT_ENGINES)
def _engine(model_id: str, device: str, dtype: str, weights: str | None) -> Engine:
    return Engine([model_id], device=device, dtype=dtype, weights=weights)
