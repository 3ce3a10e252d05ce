"""The facts about a run that travel inside its file: one JSON text in the container's comment, never the prompt."""

from __future__ import annotations

import json
from pathlib import Path

from fv_core.errors import RequestError
from fv_core.media.formats import format_of
from fv_core.request import Used

_VERSION = 1


def metadata_text(used: Used) -> str:
    """What files carry. Names of local files and whatever may quote the prompt stay out."""
    facts = {
        "fv": _VERSION,
        "model": used.model,
        "card_digest": used.card_digest,
        "plugin": used.plugin,
        "seed": used.seed,
        "steps": used.steps,
        "guidance": used.guidance,
        "sampler": used.sampler,
        "numerics": used.numerics.value,
        "dtype": used.dtype,
        "versions": dict(used.environment.versions),
        "environment_hash": used.environment_hash,
    }
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))


def read_metadata(path: str | Path) -> dict[str, object]:
    """The facts that fv stored in a file it wrote; {} for a file without them, as every `.npy` is.

    Raises:
        RequestError: the suffix names no format of fv, or the file cannot be read as one (FV315).
    """
    path = Path(path)
    try:
        comment = _comment(path, format_of(path).suffix)
    except (OSError, ValueError) as error:
        raise RequestError(
            "FV315",
            name="file",
            value=str(path),
            rule=f"cannot be read as {path.suffix}",
            remedy="Give a file that fv wrote.",
        ) from error
    return _facts(comment)


def _comment(path: Path, suffix: str) -> str:
    # PyAV and Pillow load only for the files that need them
    match suffix:
        case ".txt":
            raise ValueError("a text carries no facts")
        case ".npy" | ".wav":
            path.stat()
            return ""
        case ".mp4" | ".webm":
            from fv_core.media.video import read_comment

            return read_comment(path)
        case _:
            from fv_core.media.images import read_comment

            return read_comment(path)


def _facts(comment: str) -> dict[str, object]:
    try:
        facts = json.loads(comment)
    except (ValueError, RecursionError):
        return {}  # a comment of somebody else's
    return facts if isinstance(facts, dict) and "fv" in facts else {}
