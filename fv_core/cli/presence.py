"""Where a card's weights are, from a look at folders alone: the hub's client takes too long to load for a listing."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from fv_core.card import CheckpointManifest, Method, ModelCard
from fv_core.errors import WeightsError
from fv_core.weights.layout import shard_files
from fv_core.weights.pull_record import read_record
from fv_core.weights.store import needed_folders, weight_sources


class Presence(StrEnum):
    """untrained: made on load, noise. embedded: ship with the plugin. here, partly here, not here: to be pulled."""

    UNTRAINED = "untrained"
    EMBEDDED = "embedded"
    HERE = "here"
    PARTLY_HERE = "partly here"
    NOT_HERE = "not here"


def presence(card: ModelCard) -> Presence:
    """Where the card's weights are; agrees with `fv_core.weights.store.locate`."""
    if card.checkpoint is None:
        return Presence.UNTRAINED if card.recipe.method is Method.UNTRAINED else Presence.EMBEDDED
    root = _snapshot(card, card.checkpoint)
    if root is None or not root.is_dir():
        return Presence.NOT_HERE
    return Presence.HERE if _is_whole(card, root) else Presence.PARTLY_HERE


def hub_cache() -> Path:
    """The folder that the hub's client keeps repositories in."""
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(cache)).expanduser()


def _snapshot(card: ModelCard, checkpoint: CheckpointManifest) -> Path | None:
    repo = hub_cache() / f"models--{checkpoint.repo.replace('/', '--')}"
    try:
        record = read_record(card.model_id)
    except WeightsError:
        return None
    pulled = record.revision if record is not None and record.repo == checkpoint.repo else None
    if commit := checkpoint.revision or pulled:
        return repo / "snapshots" / commit
    main = repo / "refs" / "main"
    return repo / "snapshots" / main.read_text().strip() if main.is_file() else None


def _is_whole(card: ModelCard, root: Path) -> bool:
    if not all((root / folder).is_dir() for folder in needed_folders(card)):
        return False
    try:
        for folder, files in weight_sources(card):
            shard_files(root / folder, files)
    except WeightsError:
        return False
    return True
