"""Latents and embeddings on disk, by the key of the call that gives them: the keys that serving shares results by."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fv_core import codec
from fv_core.cache import CacheKey
from fv_core.errors import TrainError
from fv_core.loop import CallOutput
from fv_core.media.atomic import refusing, write_files


class FeatureStore:
    """One safetensors file per key, which it holds whole; written at once or not at all, by any number of runs.

    Nothing in it grows stale: another file, geometry, model, or version of a library is another key.

    Args:
        folder: made when something is stored.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writes = 0
        """Results that were written by this store, so far."""

    def path(self, key: CacheKey) -> Path:
        digest = key.digest()
        return self.folder / digest[:2] / f"{digest}.safetensors"

    def __contains__(self, key: CacheKey) -> bool:
        return self.path(key).is_file()

    def read(self, key: CacheKey) -> CallOutput | None:
        """What is stored under the key; None: nothing.

        Raises:
            TrainError: FV724, what lies there is damaged or of another key.
        """
        path = self.path(key)
        try:
            with safe_open(path, framework="pt") as file:
                told = file.metadata() or {}
                if told.get("key") != _text(key):
                    raise unusable(path, f"is of another call: {_differences(told.get('key', ''), key)}")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
                return CallOutput(tensors=tensors, notes=tuple(json.loads(told["notes"])))
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError) as error:
            raise unusable(path, f"cannot be read: {error}") from error

    def write(self, key: CacheKey, output: CallOutput) -> None:
        """Raises:
        ResourceError: FV403, the disk is full. RequestError: FV315, the folder cannot be written.
        """
        path = self.path(key)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in output.tensors.items()}
        data = save(tensors, {"key": _text(key), "notes": json.dumps(output.notes)})
        with refusing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_files({path: data}, force=True)
        self.writes += 1


def unusable(path: Path, rule: str) -> TrainError:
    """FV724."""
    return TrainError(
        "FV724",
        name="cached features",
        value=str(path),
        rule=rule,
        remedy="Delete the file; it is computed anew when it is needed.",
    )


def _text(key: CacheKey) -> str:
    return codec.canonical(codec.encode(key))


def _differences(stored: str, key: CacheKey) -> str:
    """The fields in which a stored key is not the one that was looked for."""
    try:
        found = json.loads(stored)
    except ValueError:
        return "it names none"
    wanted = json.loads(_text(key))
    told = [
        f"{name} is {found.get(name)!r} and not {value!r}"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    return ", ".join(told)
