"""Settings of a training: what is not declared is refused, what overrides do, and which may differ on resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fv_core.errors import TrainError
from fv_core.training.config import config_of, load_config, overridden
from fv_core.training.resuming import check_same, differences

DOCUMENT: dict[str, Any] = {
    "model": "testing/tiny",
    "method": {"name": "finetune"},
    "data": {"name": "shapes"},
    "save": {"dir": "runs/x"},
    "train": {"lr": 1e-4},
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt table": ({"trian": {}}, "trian: is no key or table of a training; did you mean train"),
    "a misspelt key": ({"train.learning_rat": 1}, "train.learning_rat 1: is no key"),
    "a close key": ({"train.batchs": 1}, "did you mean batch"),
    "a value of another type": ({"train.batch": "two"}, "train.batch 'two': expected int"),
    "a value out of range": ({"train.decay": 2}, r"decay is 2, which is not in \[0, 1\]"),
    "a choice that there is not": ({"train.precision": "fp8"}, "precision 'fp8'"),
    "no steps": ({"train.steps": 0}, "steps is 0"),
    "a table as a value": ({"train": 3}, "train 3: is not a table"),
    "a value as a table": ({"model": {}}, "is not text"),
    "a method without a name": ({"method": {}}, "method.name"),
    "a key of a value": ({"model.name": 3}, "names a key of model, which is a value"),
    "nothing kept": ({"save.keep": 0}, "keep is 0"),
    "too much dropped": ({"train.ema": 1.0}, "ema is 1.0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_legal_is_refused(case: str) -> None:
    overrides, told = REFUSED[case]
    with pytest.raises(TrainError, match=f"FV701 .*{told}"):
        config_of(overridden(DOCUMENT, overrides))


@pytest.mark.parametrize("name", ["model", "method", "data", "save"])
def test_what_has_no_default_has_to_be_set(name: str) -> None:
    with pytest.raises(TrainError, match=f"FV701 {name}: is not set"):
        config_of({key: value for key, value in DOCUMENT.items() if key != name})


def test_a_file_and_its_overrides(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'model = "testing/tiny"\nmethod = {name = "finetune"}\ndata = {name = "shapes"}\nsave = {dir = "x"}\n'
        "[train]\nlr = 1e-4\nbatch = 3\n"
    )
    config = load_config(
        file, ["train.lr=1e-5", "save.dir=runs/y", "train.betas=[0.5, 0.9]", "train.lrs={text=1}"]
    )
    assert (config.train.lr, config.train.batch, config.save.dir) == (1e-5, 3, "runs/y")
    assert config.train.betas == (0.5, 0.9) and config.train.lrs == {"text": 1}
    assert load_config(file, {"train.batch": 5}).train.batch == 5
    with pytest.raises(TrainError, match=r"FV701 override 'train\.lr': is not of the form"):
        load_config(file, ["train.lr"])
    with pytest.raises(TrainError, match=r"FV701 .*absent\.toml"):
        load_config(tmp_path / "absent.toml")


def test_differences_are_told_and_only_free_ones_pass() -> None:
    before = {"train": {"lr": 1e-4, "steps": 4}, "save": {"keep": 3}}
    longer = {"train": {"lr": 1e-4, "steps": 8}, "save": {"keep": 1}}
    assert set(differences(before, longer)) == {"train.steps", "save.keep"}
    check_same(before, longer, override=False)
    other = {"train": {"lr": 1e-5, "steps": 4}, "save": {"keep": 3}}
    with pytest.raises(TrainError, match=r"FV702 .*train\.lr was 0\.0001 and is 1e-05"):
        check_same(before, other, override=False)
    assert "was" in check_same(before, other, override=True)
