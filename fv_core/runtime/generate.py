"""One call from a prompt to a clip, for people who need no engine of their own."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from fv_core.media import Clip
from fv_core.request import Request
from fv_core.runtime.engine import Engine
from fv_core.runtime.models import default_model

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
    unknown = set(request) - {field.name for field in fields(Request)}
    if unknown:
        raise TypeError(f"generate() got unexpected keyword arguments: {', '.join(sorted(unknown))}")
    model_id = model or default_model().model_id
    engine = _engine(model_id, device, dtype, None if weights is None else str(weights))
    with _ONE_AT_A_TIME:  # one thread drives an engine, and threads that share a process share this one
        return engine.run(Request(prompt=prompt, model=model_id, **request))


@lru_cache(maxsize=_RESIDENT_ENGINES)
def _engine(model_id: str, device: str, dtype: str, weights: str | None) -> Engine:
    return Engine([model_id], device=device, dtype=dtype, weights=weights)
