"""What a pull would fetch: the files that a card's components read, their sizes, and what of them is here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.hf_api import RepoSibling

from fv_core.card import ModelCard
from fv_core.weights.hub_errors import hub_errors, refused
from fv_core.weights.hub_files import blob_of, partial_of
from fv_core.weights.layout import SOURCES
from fv_core.weights.pull_record import FileFacts, digest_of
from fv_core.weights.store import checkpoint_of, needed_folders, weight_sources

_TEXT: Final = (".json", ".txt", ".model", ".jinja")  # configs and tokenizers
_SHARD: Final = re.compile(r"-\d{5}-of-\d{5}\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullFile:
    """One file to have: what the hub states of it, and how many of its bytes are here."""

    facts: FileFacts
    bytes_here: int

    @property
    def complete(self) -> bool:
        return self.bytes_here == self.facts.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PullPlan:
    """What a pull would do. `revision` is the commit that the card pins, else the newest of the main branch."""

    repo: str
    revision: str
    files: tuple[PullFile, ...]

    @property
    def bytes_total(self) -> int:
        return sum(file.facts.bytes for file in self.files)

    @property
    def bytes_here(self) -> int:
        return sum(file.bytes_here for file in self.files)


def plan_pull(card: ModelCard, *, check: bool = False) -> PullPlan:
    """Asks the hub for the card's files and compares with what is here. Nothing is downloaded.

    Args:
        check: compare the digests of the files that are here, not only their sizes.

    Raises:
        RequestError: FV256, the card has no repository.
        WeightsError: FV255, the hub refuses, cannot be reached, or does not hold what the card needs.
    """
    checkpoint = checkpoint_of(card)
    repo, pinned = checkpoint.repo, checkpoint.revision
    with hub_errors(repo):
        info = HfApi().model_info(repo, revision=pinned, files_metadata=True)
    revision = info.sha
    if revision is None or (pinned is not None and pinned != revision):
        raise refused(repo, f"{pinned} is not a commit id", "The card must pin a whole commit id.")
    needed = _needed(card, repo, [_facts(sibling) for sibling in info.siblings or ()])
    files = tuple(
        PullFile(facts=facts, bytes_here=_bytes_here(repo, revision, facts, check)) for facts in needed
    )
    return PullPlan(repo=repo, revision=revision, files=files)


def copies(repo: str, revision: str, facts: FileFacts) -> Iterator[Path]:
    """Where the client's cache may hold a file: linked into the snapshot, and by its content."""
    linked = try_to_load_from_cache(repo, facts.path, revision=revision)
    if isinstance(linked, str):
        yield Path(linked)
    yield blob_of(repo, facts)


def _facts(sibling: RepoSibling) -> FileFacts:
    size = sibling.size or 0
    if sibling.lfs is not None:
        return FileFacts(
            path=sibling.rfilename, bytes=sibling.lfs.size, digest=f"sha256:{sibling.lfs.sha256}"
        )
    return FileFacts(path=sibling.rfilename, bytes=size, digest=f"git:{sibling.blob_id}")


def _needed(card: ModelCard, repo: str, offered: Sequence[FileFacts]) -> list[FileFacts]:
    """The files that the card's components read: no pickles, no variants, no second copy in other shards."""
    weights = {
        name for folder, files in weight_sources(card) for name in _weights_in(repo, folder, files, offered)
    }
    folders = needed_folders(card)
    return [facts for facts in offered if facts.path in weights or _is_text(facts.path, folders)]


def _is_text(path: str, folders: Sequence[str]) -> bool:
    place = PurePosixPath(path)
    return path == "model_index.json" or (str(place.parent) in folders and place.suffix in _TEXT)


def _weights_in(repo: str, folder: str, files: Sequence[str], offered: Sequence[FileFacts]) -> Iterator[str]:
    names = {
        PurePosixPath(f.path).name: f.path for f in offered if str(PurePosixPath(f.path).parent) == folder
    }
    if files:
        yield from _named_in(repo, folder, files, names)
        return
    source = next((name for name in SOURCES if name in names), None)
    if source is None:
        raise refused(
            repo,
            f"its folder {folder} holds no safetensors weights, and fv reads no other format",
            "Use a repository in diffusers format with safetensors files.",
        )
    yield names[source]
    if source.endswith(".index.json"):
        stem = source.removesuffix(".safetensors.index.json")
        yield from (path for name, path in names.items() if _SHARD.fullmatch(name.removeprefix(stem)))


def _named_in(repo: str, folder: str, files: Sequence[str], offered: Mapping[str, str]) -> Iterator[str]:
    for name in files:
        if name not in offered:
            raise refused(
                repo,
                f"its folder {folder} does not hold {name}",
                "Use the repository that the card was made for.",
            )
        yield offered[name]


def _bytes_here(repo: str, revision: str, facts: FileFacts, check: bool) -> int:
    for path in copies(repo, revision, facts):
        whole = path.is_file() and path.stat().st_size == facts.bytes
        if whole and (not check or digest_of(path, facts.digest.partition(":")[0]) == facts.digest):
            return facts.bytes
    partial = partial_of(repo, facts)
    # One byte short of whole: a partial file counts as complete only once its digest has been compared.
    return min(partial.stat().st_size, facts.bytes - 1) if partial.is_file() else 0
