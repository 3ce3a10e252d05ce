"""Weights that lie in no repository: in a folder, or in the package of the plugin that brings the card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fv_core
from fv_core.card import CheckpointManifest, derive
from fv_core.errors import WeightsError
from fv_core.testing.tiny import CARD
from fv_core.weights.store import locate


def test_a_folder(tmp_path: Path) -> None:
    card = derive(CARD, weights=str(tmp_path))
    with pytest.raises(WeightsError, match=r"FV252 .*subfolder text, which testing/tiny reads, is missing"):
        locate(card, None)
    for name in CARD.components:
        (tmp_path / name).mkdir()
    assert locate(card, None) == tmp_path
    assert locate(CARD, None) is None, "without one weights are made on load"
    given = tmp_path / "text"
    for name in CARD.components:
        (given / name).mkdir()
    assert locate(card, given) == given, "a folder that is given wins"


def test_a_package() -> None:
    components = {name: replace(spec, subfolders=("card",)) for name, spec in CARD.components.items()}
    assert (
        locate(derive(CARD, weights="fv_core:", components=components), None) == Path(fv_core.__file__).parent
    )
    with pytest.raises(WeightsError, match=r"FV252 .*nowhere"):
        locate(derive(CARD, weights="fv_core:nowhere"), None)


def test_a_repository_comes_first(tmp_path: Path) -> None:
    card = derive(CARD, weights=str(tmp_path), checkpoint=CheckpointManifest(repo="owner/absent"))
    with pytest.raises(WeightsError, match="FV251"):
        locate(card, None)
