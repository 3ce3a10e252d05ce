"""The file to begin from: filled in it is legal, and it names every key that there is."""

from __future__ import annotations

import dataclasses
import tomllib

import pytest

from fv_core.errors import TrainError
from fv_core.training.config import TrainTable, config_of
from fv_core.training.offered import METHODS
from fv_core.training.template import template


@pytest.mark.parametrize("method", METHODS)
def test_it_is_legal_and_names_every_key(method: str) -> None:
    text = template(method, model="wan21/micro", source="folder")
    config = config_of(tomllib.loads(text))
    assert (config.model, config.method["name"], config.data["path"]) == ("wan21/micro", method, "")
    for field in dataclasses.fields(TrainTable):
        assert f"\n# {field.name} =" in text, field.name


def test_its_defaults_are_the_defaults() -> None:
    """Every comment that has a value is taken out of its comment: nothing changes."""
    text = template("finetune", model="wan21/micro", source="shapes")
    bare = config_of(tomllib.loads(text))
    head, _, lora = text.partition("# [lora]")
    stated = "\n".join(
        line.removeprefix("# ") if line.startswith("# ") and "#" not in line[2:] else line
        for line in head.splitlines()
    )
    assert "lr = 1e-05" in stated and lora
    assert config_of(tomllib.loads(stated)).train == bare.train


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(
        TrainError, match=r"FV701 method\.name 'finetun': is no method; did you mean finetune"
    ):
        template("finetun", model="wan21/micro", source="folder")
    with pytest.raises(
        TrainError, match=r"FV701 data\.name 'foldr': is no kind of data; did you mean folder"
    ):
        template("finetune", model="wan21/micro", source="foldr")
