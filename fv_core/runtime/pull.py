"""Fetches a card's checkpoint from the hub into the hub's own cache: size first, resumable, digests checked."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from huggingface_hub import HfApi, constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.hf_api import RepoSibling

from fv_core.card import ModelCard
from fv_core.runtime.hub_errors import disk_full, hub_errors, refused
from fv_core.runtime.hub_files import Meter, blob_of, partial_of, receive
from fv_core.runtime.layout import SOURCES
from fv_core.runtime.pull_record import FileFacts, PullRecord, digest_of, write_record
from fv_core.runtime.weights import checkpoint_of, needed_folders, weight_folders

_CONNECTIONS: Final = 4
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


def pull(card: ModelCard, plan: PullPlan, progress: Callable[[int], None]) -> Path:
    """Completes the files of `plan` in the hub's cache and records the pull; the root of the checkpoint.

    Safe to interrupt at any time: the next pull goes on where this one stopped.

    Args:
        progress: told how many of `plan.bytes_total` are here, from several threads but one at a time.

    Raises:
        WeightsError: FV255, the hub refuses or the connection broke.
        ResourceError: FV403, the disk is full or would be.
    """
    _require_space(plan)
    for file in plan.files:
        if not file.complete:
            _forget(plan, file.facts)
    meter = Meter(sum(file.facts.bytes for file in plan.files if file.complete), progress)
    with hub_errors(plan.repo):
        _receive_all(plan, meter)
        # The client fetches the small files and links the received ones into the snapshot.
        for file in plan.files:
            path = hf_hub_download(plan.repo, file.facts.path, revision=plan.revision, tqdm_class=meter.bar())
    files = tuple(file.facts for file in plan.files)
    write_record(card.model_id, PullRecord(repo=plan.repo, revision=plan.revision, files=files))
    return Path(path).parents[len(PurePosixPath(files[-1].path).parts) - 1]


def _receive_all(plan: PullPlan, meter: Meter) -> None:
    todo = [file.facts for file in plan.files if not file.complete and _by_digest(file.facts)]
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        transfers = [pool.submit(receive, plan.repo, plan.revision, facts, meter) for facts in todo]
        try:
            for transfer in as_completed(transfers):
                transfer.result()
        except BaseException:
            # The pool waits for its threads: stop them, or an interrupt would wait for gigabytes.
            meter.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _by_digest(facts: FileFacts) -> bool:
    # The hub serves larger files to its client alone.
    return facts.digest.startswith("sha256:") and facts.bytes <= constants.MAX_HTTP_DOWNLOAD_SIZE


def _facts(sibling: RepoSibling) -> FileFacts:
    size = sibling.size or 0
    if sibling.lfs is not None:
        return FileFacts(
            path=sibling.rfilename, bytes=sibling.lfs.size, digest=f"sha256:{sibling.lfs.sha256}"
        )
    return FileFacts(path=sibling.rfilename, bytes=size, digest=f"git:{sibling.blob_id}")


def _needed(card: ModelCard, repo: str, offered: Sequence[FileFacts]) -> list[FileFacts]:
    """The files that the card's components read: no pickles, no variants, no second copy in other shards."""
    weights = {name for folder in weight_folders(card) for name in _weights_in(repo, folder, offered)}
    folders = needed_folders(card)
    return [facts for facts in offered if facts.path in weights or _is_text(facts.path, folders)]


def _is_text(path: str, folders: Sequence[str]) -> bool:
    place = PurePosixPath(path)
    return path == "model_index.json" or (str(place.parent) in folders and place.suffix in _TEXT)


def _weights_in(repo: str, folder: str, offered: Sequence[FileFacts]) -> Iterator[str]:
    names = {
        PurePosixPath(f.path).name: f.path for f in offered if str(PurePosixPath(f.path).parent) == folder
    }
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


def _bytes_here(repo: str, revision: str, facts: FileFacts, check: bool) -> int:
    for path in _copies(repo, revision, facts):
        whole = path.is_file() and path.stat().st_size == facts.bytes
        if whole and (not check or digest_of(path, facts.digest.partition(":")[0]) == facts.digest):
            return facts.bytes
    partial = partial_of(repo, facts)
    # One byte short of whole: a partial file counts as complete only once its digest has been compared.
    return min(partial.stat().st_size, facts.bytes - 1) if partial.is_file() else 0


def _copies(repo: str, revision: str, facts: FileFacts) -> Iterator[Path]:
    linked = try_to_load_from_cache(repo, facts.path, revision=revision)
    if isinstance(linked, str):
        yield Path(linked)
    yield blob_of(repo, facts)


def _forget(plan: PullPlan, facts: FileFacts) -> None:
    """Removes damaged copies, which the client would take for complete."""
    for path in _copies(plan.repo, plan.revision, facts):
        path.unlink(missing_ok=True)


def _require_space(plan: PullPlan) -> None:
    folder = Path(constants.HF_HUB_CACHE).expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    wanted, free = plan.bytes_total - plan.bytes_here, shutil.disk_usage(folder).free
    if wanted > free:
        raise disk_full(
            f"download of {plan.repo}",
            f"{wanted / 1e9:.1f} GB are to be fetched, {folder} has {free / 1e9:.1f} GB free",
        )
