"""Fetches a card's checkpoint from the hub into the hub's own cache: size first, resumable, digests checked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from huggingface_hub import constants, hf_hub_download

from fv_core.card import ModelCard
from fv_core.weights.hub_errors import disk_full, hub_errors
from fv_core.weights.hub_files import Meter, receive
from fv_core.weights.pull_plan import PullPlan, copies
from fv_core.weights.pull_record import FileFacts, PullRecord, write_record

_CONNECTIONS: Final = 4


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
    waiting: SimpleQueue[FileFacts] = SimpleQueue()
    ended: SimpleQueue[BaseException | None] = SimpleQueue()
    for facts in todo:
        waiting.put(facts)
    for _ in range(min(_CONNECTIONS, len(todo))):
        # Daemons: an interrupt must not wait for a connection that hangs.
        Thread(target=_receive_some, args=(plan, waiting, ended, meter), daemon=True).start()
    try:
        for _ in todo:
            if (failure := ended.get()) is not None:
                raise failure
    except BaseException:
        meter.stop()
        raise


def _receive_some(
    plan: PullPlan,
    waiting: SimpleQueue[FileFacts],
    ended: SimpleQueue[BaseException | None],
    meter: Meter,
) -> None:
    try:
        while True:
            receive(plan.repo, plan.revision, waiting.get_nowait(), meter)
            ended.put(None)
    except Empty:
        return
    except BaseException as failure:  # raised again by the thread that waits
        ended.put(failure)


def _by_digest(facts: FileFacts) -> bool:
    # The hub serves larger files to its client alone.
    return facts.digest.startswith("sha256:") and facts.bytes <= constants.MAX_HTTP_DOWNLOAD_SIZE


def _forget(plan: PullPlan, facts: FileFacts) -> None:
    """Removes damaged copies, which the client would take for complete."""
    for path in copies(plan.repo, plan.revision, facts):
        path.unlink(missing_ok=True)


def _require_space(plan: PullPlan) -> None:
    folder = Path(constants.HF_HUB_CACHE).expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    wanted, free = plan.bytes_total - plan.bytes_here, shutil.disk_usage(folder).free
    if wanted > free:
        raise disk_full(
            f"download of {plan.repo}",
            f"{wanted / 2**30:.1f} GiB are to be fetched, {folder} has {free / 2**30:.1f} GiB free",
        )
