"""Rules of names: ids go into files, addresses and keys, and places of weights into paths; none may lead elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fv_core.card.card import ModelCard
from fv_core.errors import CardError

_WORDS: Final = "[a-z0-9]+(?:[._-][a-z0-9]+)*"
FAMILY: Final = re.compile(_WORDS)
MODEL_ID: Final = re.compile(f"{_WORDS}/{_WORDS}")
PART_ID: Final = re.compile("[A-Za-z0-9_-]+")

_LEGAL: Final = {
    FAMILY: "letters a-z and digits in words that one of . _ - joins, as in wan21",
    MODEL_ID: "<plugin>/<model>, each of a-z and 0-9 in words that one of . _ - joins, as in wan21/t2v-1.3b",
    PART_ID: "letters, digits, _ and -",
}

_HUB_NAME: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REPO: Final = re.compile(rf"(?!.*(?:--|\.\.))(?!.*\.git\Z)(?:{_HUB_NAME}/)?{_HUB_NAME}")
_COMMIT: Final = re.compile("[0-9a-f]{40}")
_ENTRY: Final = r"(?!\.\.?(?:/|\Z))[\w.-]+"
_FOLDER: Final = re.compile(f"{_ENTRY}(?:/{_ENTRY})*", re.ASCII)
_FILE: Final = re.compile(r"(?!\.)[\w.-]+\.safetensors", re.ASCII)


def model_id(card: ModelCard) -> Iterator[CardError]:
    """FV216: the id names files and appears in addresses: it holds nothing that a path or a shell reads otherwise."""
    yield from _id("model_id", card.model_id, MODEL_ID)


def family(card: ModelCard) -> Iterator[CardError]:
    """FV216."""
    yield from _id("family", card.family, FAMILY)


def ids(card: ModelCard) -> Iterator[CardError]:
    """FV216 for each id of a component, a loop, a parameter or a node that is not one."""
    for part in ("components", "loops", "params"):
        for ident in getattr(card, part):
            yield from _id(part, ident, PART_ID)
    for task, program in card.programs.items():
        for node in program.nodes:
            yield from _id(f"programs.{task}.nodes", node.id, PART_ID)


def _id(name: str, value: str, pattern: re.Pattern[str]) -> Iterator[CardError]:
    if not pattern.fullmatch(value):
        yield CardError(
            "FV216",
            name=name,
            value=value,
            rule="is not a legal id",
            legal=_LEGAL[pattern],
            remedy="Rename it.",
        )


def repository(card: ModelCard) -> Iterator[CardError]:
    """FV220: repository and commit are such as the hub has."""
    if (checkpoint := card.checkpoint) is None:
        return
    if not _REPO.fullmatch(checkpoint.repo):
        yield _place("checkpoint.repo", checkpoint.repo, "<owner>/<name>, as the hub has them")
    if checkpoint.revision is not None and not _COMMIT.fullmatch(checkpoint.revision):
        yield _place("checkpoint.revision", checkpoint.revision, "a whole commit id, 40 hex digits, or None")


def files(card: ModelCard) -> Iterator[CardError]:
    """FV220: what a component reads lies inside the checkpoint."""
    for name, spec in card.components.items():
        for folder in spec.subfolders:
            if not _FOLDER.fullmatch(folder):
                yield _place(f"components.{name}.subfolders", folder, "folders inside the checkpoint")
        for file in spec.files:
            if not _FILE.fullmatch(file):
                yield _place(f"components.{name}.files", file, "names of safetensors files")


def _place(name: str, value: str, legal: str) -> CardError:
    return CardError(
        "FV220",
        name=name,
        value=value,
        rule="cannot name where weights lie",
        legal=legal,
        remedy="Correct it.",
    )
