"""What lies where in a checkpoint folder: JSON files, the index, and the shards with their headers.

Follows the layout that diffusers and transformers write. Only safetensors is read, never a pickle.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final

from fv_core.errors import WeightsError
from fv_core.weights.safetensors_header import TensorHeader, damaged, read_header

_STEMS: Final = ("diffusion_pytorch_model", "model")

SOURCES: Final = tuple(f"{stem}.safetensors{end}" for end in (".index.json", "") for stem in _STEMS)
"""Names of the file that says what a folder holds, the one to take first: an index wins over a single file beside
it, as in diffusers; diffusers' name comes before transformers'."""

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The tensors of one folder: `source` (the index or the first file) is what errors name.

    `headers` and `files` go by the names that a module has for its tensors, `stored` has those that the files hold
    under another name.
    """

    source: Path
    headers: Mapping[str, TensorHeader]
    files: Mapping[str, Path]
    stored: Mapping[str, str] = field(default_factory=dict)

    def read_as(self, names: Mapping[str, str], others: Sequence[str]) -> Shards:
        """The same files as a module sees them, as `LoadContext.fill` has `names` and `others`.

        Raises:
            WeightsError: FV254, a tensor bears a name that `names` gives to another one.
        """
        by_stored = {stored: name for name, stored in names.items()}
        own = [key for key in self.headers if not any(f"{key}.".startswith(f"{other}.") for other in others)]
        if taken := [key for key in own if key in names and key not in by_stored]:
            raise mismatch(self.source, f"{len(taken)} tensors are unexpected: {named(taken)}")
        return Shards(
            source=self.source,
            headers={by_stored.get(key, key): self.headers[key] for key in own},
            files={by_stored.get(key, key): self.files[key] for key in own},
            stored=dict(names),
        )


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file.

    Raises:
        WeightsError: FV252 the file is missing, FV253 it holds no JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise missing(path, "the file is missing") from None
    except OSError as error:
        raise damaged(path, f"the file cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"the file is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise damaged(path, f"the file holds a JSON {type(value).__name__} where an object belongs")
    return value


def shard_files(folder: Path, files: Sequence[str] = ()) -> tuple[Path, ...]:
    """The files that hold the tensors of a component's folder; they exist, their content is not looked at.

    Args:
        files: their names; () finds those of diffusers' layout.

    Raises:
        WeightsError: FV252 nothing to read, or a shard of the index is missing; FV253 the index is damaged.
    """
    if files:
        return _present(folder, files)
    source, weight_map = _source(folder)
    return (source,) if weight_map is None else _shards_of(source, weight_map)


def read_shards(folder: Path, files: Sequence[str] = ()) -> Shards:
    """The headers of a component's folder, each file as long as it says and holding what the index says.

    Args:
        files: as for `shard_files`.

    Raises:
        WeightsError: as `shard_files`; FV253 a shard is damaged; FV254 index and shards disagree.
    """
    source, weight_map = (folder / files[0], None) if files else _source(folder)
    headers: dict[str, TensorHeader] = {}
    places: dict[str, Path] = {}
    for path in shard_files(folder, files):
        for name, header in read_header(path).items():
            if name in headers:
                raise mismatch(path, f"tensor {name} is in {places[name].name} too")
            headers[name], places[name] = header, path
    if weight_map is not None:
        _check_index(source, weight_map, places)
    return Shards(source=source, headers=headers, files=places)


def named(keys: Collection[str]) -> str:
    """The first few of `keys`, and how many more there are."""
    first = ", ".join(sorted(keys)[:_SHOWN])
    return first if len(keys) <= _SHOWN else f"{first} and {len(keys) - _SHOWN} more"


def mismatch(source: Path, rule: str) -> WeightsError:
    """FV254: the weights are not those of the model."""
    return WeightsError(
        "FV254", name=str(source), rule=rule, remedy="Use the checkpoint that the card was made for."
    )


def missing(
    path: Path, rule: str, *, remedy: str = "Complete the folder, or use one that is whole."
) -> WeightsError:
    """FV252: something that the layout requires is not there."""
    return WeightsError(
        "FV252",
        name=str(path),
        rule=rule,
        remedy=remedy,
    )


def _present(folder: Path, files: Sequence[str]) -> tuple[Path, ...]:
    if not folder.is_dir():
        raise missing(folder, "the folder is missing")
    paths = tuple(folder / name for name in files)
    if absent := [path for path in paths if not path.is_file()]:
        raise missing(absent[0], "the file is missing")
    return paths


def _source(folder: Path) -> tuple[Path, dict[str, str] | None]:
    for source in (folder / name for name in SOURCES):
        if source.is_file():
            return source, _weight_map(source) if source.suffix == ".json" else None
    raise _nothing_to_read(folder)


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise damaged(index, "the index has no weight_map")
    for key, shard in weight_map.items():
        # An index from outside must not lead out of its folder.
        if not isinstance(shard, str) or PurePath(shard).name != shard or not shard.endswith(".safetensors"):
            raise damaged(
                index, f"the index sends {key} to {shard!r}, which is no safetensors file beside it"
            )
    return weight_map


def _shards_of(index: Path, weight_map: Mapping[str, str]) -> tuple[Path, ...]:
    paths = tuple(index.parent / shard for shard in sorted(set(weight_map.values())))
    if absent := [path for path in paths if not path.is_file()]:
        raise missing(
            absent[0], f"the shard is missing, {index.name} names it ({len(absent)} missing in all)"
        )
    return paths


def _check_index(index: Path, weight_map: Mapping[str, str], files: Mapping[str, Path]) -> None:
    absent = [key for key, shard in weight_map.items() if files.get(key) != index.parent / shard]
    if absent:
        raise mismatch(
            index, f"{len(absent)} tensors are not in the shard that the index names: {named(absent)}"
        )
    unlisted = files.keys() - weight_map.keys()
    if unlisted:
        raise mismatch(
            index, f"{len(unlisted)} tensors of the shards are not in the index: {named(unlisted)}"
        )


def _nothing_to_read(folder: Path) -> WeightsError:
    if not folder.is_dir():
        return missing(folder, "the folder is missing")
    wanted = " or ".join(f"{stem}.safetensors[.index.json]" for stem in _STEMS)
    have = [path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".ckpt", ".safetensors")]
    return missing(
        folder, f"only safetensors is read: {wanted} is missing (there is {named(have) or 'no weights file'})"
    )
