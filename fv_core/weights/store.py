"""The weights store: where a card's checkpoint lies on this machine, and whether it is whole. Nothing is fetched."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from fv_core.card import CheckpointManifest, ModelCard
from fv_core.errors import RequestError, WeightsError
from fv_core.weights.layout import missing, read_json, read_shards, shard_files
from fv_core.weights.pull_record import PullRecord, digest_of, read_record
from fv_core.weights.safetensors_header import read_header

_BLOCK = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that `verify` found wrong."""

    file: str
    reason: str


def locate(card: ModelCard, explicit: Path | None) -> Path | None:
    """The root of the card's checkpoint; None for a card whose weights are made on load.

    An explicit folder wins, then the repository, then the folder that the card brings. The hub's cache is asked for the
    card's pinned revision, else for the revision that was pulled, else for the branch `main` where something else has
    put it there.

    Raises:
        WeightsError: FV251 not (or only partly) on this machine, FV252 the explicit folder or one of its subfolders
            is missing.
    """
    if explicit is not None:
        folder = _given(explicit, card)
    elif card.checkpoint is not None:
        folder = _cached(card, card.checkpoint)
    elif card.weights:
        folder = _given(_own(card), card)
    else:
        return None
    for subfolder in needed_folders(card):
        if not (folder / subfolder).is_dir():
            absent = f"the subfolder {subfolder}, which {card.model_id} reads, is missing"
            fault = missing(folder, absent, remedy=_otherwise(card))
            raise fault if explicit is not None or card.checkpoint is None else _partly_here(card, fault)
    if explicit is None and card.checkpoint is not None:
        _require_shards(card, folder)
    return folder


def _own(card: ModelCard) -> Path:
    """The folder that a card brings."""
    package, separator, folder = card.weights.partition(":")
    if not separator or len(package) == 1:  # an absolute folder, of a drive too
        return Path(card.weights)
    return Path(str(resources.files(package))) / folder


def checkpoint_of(card: ModelCard) -> CheckpointManifest:
    """The repository that a card names.

    Raises:
        RequestError: FV256, it names none.
    """
    if card.checkpoint is None:
        raise RequestError(
            "FV256",
            name=f"model {card.model_id}",
            rule="has no repository; its weights ship with its plugin or are made on load",
            remedy="Use it as it is, or give a folder with `--weights PATH`.",
        )
    return card.checkpoint


def weight_sources(card: ModelCard) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Where tensors lie, each place once: the first subfolder of every component ("." is the root), and the names of
    the files there, () for those of diffusers' layout.
    """
    specs = card.components.values()
    return tuple(
        dict.fromkeys((spec.subfolders[0] if spec.subfolders else ".", spec.files) for spec in specs)
    )


def needed_folders(card: ModelCard) -> tuple[str, ...]:
    """All subfolders that the card's components read, each once."""
    others = (folder for spec in card.components.values() for folder in spec.subfolders)
    return tuple(dict.fromkeys((*(folder for folder, _ in weight_sources(card)), *others)))


def fingerprint(card: ModelCard, folder: Path) -> str:
    """12 hex digits that tell weights of equal shapes apart: names, sizes, and blocks spread over each file.

    Every file of tensors is read at 256 places; reading all of a 14B model at each start would take minutes. What
    must detect any change at all uses the full hash of a certificate. Files of no tensors are read whole.
    """
    told = hashlib.sha256()
    for path in plain_files(card, folder):
        told.update(f"{path.relative_to(folder).as_posix()}={digest_of(path, 'sha256')}\n".encode())
    for subfolder, files in weight_sources(card):
        for path in shard_files(folder / subfolder, files):
            size = path.stat().st_size
            told.update(f"{subfolder}/{path.name}:{size};".encode())
            with path.open("rb") as file:
                for place in range(0, size, max(_BLOCK, size // 256)):
                    file.seek(place)
                    told.update(file.read(_BLOCK))
    return told.hexdigest()[:12]


def plain_files(card: ModelCard, folder: Path) -> tuple[Path, ...]:
    """The files in the folders that the card reads that hold no tensors: configs, tokenizers, indexes.

    A component may read any of them, so all count; hidden ones, where hubs keep notes of their own, do not.
    """
    found = {
        path
        for subfolder in needed_folders(card)
        for path in (folder / subfolder).rglob("*")
        if path.is_file() and path.suffix != ".safetensors"
    }
    return tuple(
        path
        for path in sorted(found)
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def size_of(card: ModelCard, folder: Path) -> int:
    """Bytes of the files in the folders that the card reads."""
    files = (
        path
        for subfolder in needed_folders(card)
        for path in (folder / subfolder).iterdir()
        if path.is_file()
    )
    return sum(path.stat().st_size for path in files)


def verify(card: ModelCard, explicit: Path | None) -> list[Problem]:
    """What is wrong with the card's files, all of it; empty when they are whole.

    Files that `pull` fetched are compared with the size and digest that the hub stated. Others are checked as far as
    they tell: JSON is JSON, files are as long as their headers say, shards agree with their index.

    Raises:
        WeightsError: FV251 or FV252, nothing to verify; FV253 the record of the pull is damaged.
        RequestError: FV256, neither a repository nor an explicit folder.
    """
    folder = _given(explicit, card) if explicit is not None else _cached(card, checkpoint_of(card))
    record = read_record(card.model_id) if explicit is None else None
    if record is not None and record.revision == folder.name:
        return list(_against_record(folder, record))
    return [
        problem for subfolder in needed_folders(card) for problem in _against_headers(card, folder, subfolder)
    ]


def _given(folder: Path, card: ModelCard) -> Path:
    if not folder.is_dir():
        rule = "it is not a folder" if folder.exists() else "the folder is missing"
        raise missing(folder, rule, remedy=_otherwise(card))
    return folder


def _otherwise(card: ModelCard) -> str:
    """What to do where the folder that the user names is not the card's."""
    if card.checkpoint is None:
        return f"{card.model_id} has no repository: give a whole folder, or leave it out for its own weights."
    return f"Give a whole folder, or leave it out and fetch one with `fv weights pull {card.model_id}`."


def _cached(card: ModelCard, checkpoint: CheckpointManifest) -> Path:
    # Imported late: a run on an explicit folder or an embedded model never needs the hub client.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import IncompleteSnapshotError, LocalEntryNotFoundError

    record = read_record(card.model_id)
    pulled = record.revision if record is not None and record.repo == checkpoint.repo else None
    revision = checkpoint.revision or pulled or "main"
    try:
        return Path(snapshot_download(checkpoint.repo, revision=revision, local_files_only=True))
    except IncompleteSnapshotError as error:
        return Path(error.snapshot_path)  # whether the card misses any of the absent files is looked at next
    except LocalEntryNotFoundError:
        raise _not_here(card, f"{checkpoint.repo} is not on this machine") from None


def _require_shards(card: ModelCard, folder: Path) -> None:
    for subfolder, files in weight_sources(card):
        try:
            shard_files(folder / subfolder, files)
        except WeightsError as error:
            raise _partly_here(card, error) from error


def _partly_here(card: ModelCard, fault: WeightsError) -> WeightsError:
    return _not_here(card, f"{checkpoint_of(card).repo} is only partly on this machine ({fault.message})")


def _not_here(card: ModelCard, rule: str) -> WeightsError:
    return WeightsError(
        "FV251",
        name=f"weights of {card.model_id}",
        rule=rule,
        remedy=f"`fv weights pull {card.model_id}` fetches them, size first; `--weights PATH` uses a folder you have.",
    )


def _against_record(folder: Path, record: PullRecord) -> Iterator[Problem]:
    for facts in record.files:
        path = folder / facts.path
        if not path.is_file():
            yield Problem(file=str(path), reason="is missing")
        elif (size := path.stat().st_size) != facts.bytes:
            yield Problem(file=str(path), reason=f"has {size} bytes, the hub stated {facts.bytes}")
        elif digest_of(path, facts.digest.partition(":")[0]) != facts.digest:
            yield Problem(file=str(path), reason=f"has other content than the hub stated ({facts.digest})")


def _against_headers(card: ModelCard, root: Path, subfolder: str) -> list[Problem]:
    folder = root / subfolder
    if not folder.is_dir():
        return [Problem(file=str(folder), reason="the folder is missing")]
    problems = [problem for path in sorted(folder.glob("*.json")) for problem in _faults(read_json, path)]
    for source, files in weight_sources(card):
        if source == subfolder:
            problems += _in_shards(folder, files)
    return problems


def _in_shards(folder: Path, files: tuple[str, ...]) -> list[Problem]:
    if faults := _faults(shard_files, folder, files):
        return faults
    damaged = [problem for path in shard_files(folder, files) for problem in _faults(read_header, path)]
    return damaged or _faults(read_shards, folder, files)


def _faults(check: Callable[..., object], *where: object) -> list[Problem]:
    try:
        check(*where)
    except WeightsError as error:
        return [Problem(file=error.name, reason=error.rule)]
    return []
