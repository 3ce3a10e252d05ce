"""The opt-in file beside a clip that holds all it takes to repeat the run, prompt included."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fv_core import codec
from fv_core.errors import RequestError
from fv_core.media.atomic import refusing, write_files
from fv_core.media.naming import sidecar_path
from fv_core.media.output import check_free
from fv_core.request import ResolvedRequest, Used

if TYPE_CHECKING:
    from fv_core.media.clip import Clip

_SCHEMA = "fv-sidecar/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """A settled request and what its run used, the numeric environment included."""

    request: ResolvedRequest
    used: Used


def write_sidecar(path: str | Path, clip: Clip, *, force: bool = False) -> Path:
    """Writes `<path>.json` for the clip saved to `path`, whole or not at all.

    Returns:
        The sidecar's path.

    Raises:
        RequestError: it exists and `force` is not set, or cannot be written (FV315).
        ResourceError: the disk is full (FV403).
    """
    target = sidecar_path(path)
    check_free(target, force=force)
    stored = cast(dict[str, object], codec.encode(Sidecar(request=clip.request, used=clip.used)))
    text = json.dumps({"schema": _SCHEMA, **stored}, indent=2, ensure_ascii=False)
    with refusing(target):
        write_files({target: f"{text}\n".encode()}, force=force)
    return target


def read_sidecar(path: str | Path) -> Sidecar:
    """What `write_sidecar` stored, equal in every bit.

    Raises:
        RequestError: the file cannot be read or is no sidecar of this version (FV311).
    """
    try:
        stored = json.loads(Path(path).read_bytes())
        if not isinstance(stored, dict) or stored.pop("schema", None) != _SCHEMA:
            raise codec.DecodeError(f"it lacks the schema {_SCHEMA!r}")
        return codec.decode(Sidecar, stored)
    # KeyError: the codec's look-up of a float that is none; RecursionError: brackets nested without end
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise RequestError(
            "FV311",
            name="sidecar",
            value=str(path),
            rule=f"is not a sidecar of this version of fv: {_brief(error)}",
            remedy="Give the .json file that was written beside a clip.",
        ) from error


def _brief(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else str(error)
    return (text or type(error).__name__)[:200]
