"""A folder that is a model: weights, and a file that says which installed card they are of and how they were made.

Code always comes from the installed plugin: the file names a card and none of its parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fv_core import codec
from fv_core.card import ModelCard, RecipeSpec, derive, validate
from fv_core.errors import WeightsError

FILE: Final = "model.json"
_INSIDE: Final = "model"
"""Where a run's folder has its model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """What the file says.

    Args:
        base: id of the card that the weights are of. recipe: theirs, in place of the card's.
        summary: what they are, in a sentence.
    """

    base: str
    recipe: RecipeSpec
    summary: str


def model_folder(path: str) -> Path | None:
    """The folder with the model that `path` names: itself, or that of a run; None: it is no model."""
    if "\0" in path:
        return None
    return next((folder for folder in (Path(path), Path(path) / _INSIDE) if (folder / FILE).is_file()), None)


def read_model(folder: Path, find_card: Callable[[str], ModelCard]) -> ModelCard:
    """The card of a folder: that of its base, with its own recipe and weights, as `<plugin>/<folder's name>`.

    Raises:
        WeightsError: FV253, the file is damaged. PluginError: FV101, its base is not installed.
        CardError: the recipe does not fit the card.
    """
    try:
        told = codec.decode(ModelFolder, json.loads((folder / FILE).read_text()))
    except (OSError, ValueError) as error:
        raise WeightsError(
            "FV253",
            name=str(folder / FILE),
            rule=f"does not say what model it is: {error}",
            remedy="Export it anew.",
        ) from error
    base = find_card(told.base)
    card = derive(
        base,
        model_id=f"{base.model_id.partition('/')[0]}/{_name(folder)}",
        summary=told.summary,
        recipe=told.recipe,
        checkpoint=None,
        weights=str(folder.resolve()),
    )
    for finding in validate(card):
        raise finding
    return card


def lies_in(card: ModelCard) -> str:
    """The folder that a card was read from; "" for one that a plugin or a program brings."""
    return card.weights if card.weights and (Path(card.weights) / FILE).is_file() else ""


def base_of(card: ModelCard) -> str:
    """The id of the installed card that a card is of."""
    folder = lies_in(card)
    return (
        codec.decode(ModelFolder, json.loads((Path(folder) / FILE).read_text())).base
        if folder
        else card.model_id
    )


def write_model(folder: Path, told: ModelFolder) -> None:
    """Makes a folder with weights one that `read_model` reads."""
    (folder / FILE).write_text(json.dumps(codec.encode(told), indent=1, sort_keys=True) + "\n")


def _name(folder: Path) -> str:
    """The last part of the id: the folder's name, or its run's, in the letters that ids have."""
    whole = folder.resolve()
    own = whole.parent.name if whole.name == _INSIDE else whole.name
    return re.sub(r"[^a-z0-9]+", "-", own.lower()).strip("-") or "model"
