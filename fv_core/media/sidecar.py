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
    """A settled request and what its run used, the numeric environment included.

    `scale` is the whole factor by which the file's frames were enlarged.
    """

    request: ResolvedRequest
    used: Used
    scale: int = 1


def write_sidecar(path: str | Path, clip: Clip, *, scale: int = 1, force: bool = False) -> Path:
    """Writes `<path>.json` for the clip saved to `path` at this scale, whole or not at all.

    Returns:
        The sidecar's path.

    Raises:
        RequestError: it exists and `force` is not set, or cannot be written (FV315).
        ResourceError: the disk is full (FV403).
    """
    target = sidecar_path(path)
    check_free(target, force=force)
    sidecar = Sidecar(request=clip.request, used=clip.used, scale=scale)
    stored = cast(dict[str, object], codec.encode(sidecar))
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
        return _decoded(Path(path).read_bytes())
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, RecursionError) as error:  # the last: brackets nested without end
        raise _unusable(path, f"is not a sidecar of this version of fv: {str(error)[:200]}") from error


def _decoded(data: bytes) -> Sidecar:
    try:
        stored = json.loads(data)
    except ValueError as error:
        raise codec.DecodeError(f"it is not JSON ({error})") from error
    schema = stored.pop("schema", None) if isinstance(stored, dict) else None
    if schema != _SCHEMA:
        raise codec.DecodeError(f"its schema is {schema!r}, not {_SCHEMA!r}")
    return codec.decode(Sidecar, stored)


def _unusable(path: str | Path, rule: str) -> RequestError:
    return RequestError(
        "FV311",
        name="sidecar",
        value=str(path),
        rule=rule,
        remedy="Give the .json file that `fv generate --sidecar` wrote beside a clip.",
    )
