"""Receives large files of the hub so that an interrupted transfer goes on later, in another process too.

The hub's client starts an interrupted file anew, which costs gigabytes. Files with a stated sha256 are therefore
received here: appended to what is there, compared with their digest, and left in the client's cache under it.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from huggingface_hub import constants, hf_hub_url
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]  # exported lazily

from fv_core.weights.hub_errors import refused
from fv_core.weights.pull_record import FileFacts, digest_of


class TransferStopped(Exception):
    """Another transfer of the same pull failed, or the user interrupted it."""


class Meter:
    """Counts the bytes of all transfers of a pull, from any thread, and stops them all.

    Args:
        done: bytes that are here already.
        report: told the total after every piece.
    """

    def __init__(self, done: int, report: Callable[[int], None]) -> None:
        self._done = done
        self._report = report
        self._lock = threading.Lock()
        self._stopped = False

    def add(self, count: int) -> None:
        """Raises:
        TransferStopped: after `stop`.
        """
        with self._lock:
            if self._stopped:
                raise TransferStopped
            self._done += count
            self._report(self._done)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True

    def bar(self) -> type[object]:
        """What the client takes for a progress bar's class: bars that feed this meter and draw nothing."""
        meter = self

        class Bar:
            def __init__(self, *args: object, initial: int = 0, **options: object) -> None:
                meter.add(initial)

            def __enter__(self) -> Self:
                return self

            def __exit__(
                self,
                kind: type[BaseException] | None,
                error: BaseException | None,
                trace: TracebackType | None,
            ) -> None:
                return None

            def update(self, count: int = 1) -> None:
                meter.add(count)

        return Bar


def blob_of(repo: str, facts: FileFacts) -> Path:
    """Where the client's cache keeps a file, whichever revisions it belongs to."""
    return _cache() / _folder(repo) / "blobs" / facts.digest.partition(":")[2]


def partial_of(repo: str, facts: FileFacts) -> Path:
    """Where the part of a file lies that has been received. The client's own clean-up knows the suffix."""
    return blob_of(repo, facts).with_suffix(".fv.incomplete")


def receive(repo: str, revision: str, facts: FileFacts, meter: Meter) -> None:
    """Completes one file with a sha256 digest in the client's cache.

    Raises:
        WeightsError: FV255, what arrived is not what the hub stated.
        TransferStopped: the meter was stopped; the received part is kept.
        OSError: what the client raised; the received part is kept unless the disk is full.
    """
    blob, partial = blob_of(repo, facts), partial_of(repo, facts)
    lock = _cache() / ".locks" / _folder(repo) / f"{blob.name}.lock"  # the client's own for this file
    for path in (blob, lock):
        path.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if blob.exists():  # another process was faster
            meter.add(facts.bytes)
            return
        resumed = partial.exists()
        if not _arrives(repo, revision, facts, partial, meter):
            meter.add(-facts.bytes)
            # The part that an earlier pull left may be at fault, so only a file fetched whole is the hub's own.
            if not resumed or not _arrives(repo, revision, facts, partial, meter):
                raise refused(repo, f"{facts.path} arrived with another content than the hub states")
        partial.replace(blob)


def _arrives(repo: str, revision: str, facts: FileFacts, partial: Path, meter: Meter) -> bool:
    """Whether the file is complete and of the stated content; one of another content is removed."""
    _append(repo, revision, facts, partial, meter)
    if digest_of(partial, "sha256") == facts.digest:
        return True
    partial.unlink()
    return False


def _append(repo: str, revision: str, facts: FileFacts, partial: Path, meter: Meter) -> None:
    partial.touch()
    with partial.open("r+b") as file:
        have = file.seek(0, 2)
        if have > facts.bytes:
            have = file.truncate(0)
            file.seek(0)
        if have == facts.bytes:
            meter.add(have)
            return
        try:
            http_get(
                hf_hub_url(repo, facts.path, revision=revision),
                file,
                resume_size=have,
                # A compressed answer could not be appended to.
                headers={**build_hf_headers(), "Accept-Encoding": "identity"},
                expected_size=facts.bytes,
                tqdm_class=meter.bar(),
            )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                partial.unlink()
            raise


def _cache() -> Path:
    return Path(constants.HF_HUB_CACHE).expanduser()


def _folder(repo: str) -> str:
    return repo_folder_name(repo_id=repo, repo_type="model")
