"""The recipe of a run's model tells what it began from, on which data, how, and what it came to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fv_core.card import ModelCard, Provenance, derive
from fv_core.cli.presence import Presence
from fv_core.cli.show import card_lines
from fv_core.plugins.model_folder import FILE, read_model
from fv_core.testing.tiny import CARD
from fv_core.testing.training import tiny_run
from fv_core.training.run import _command
from fv_core.training.runlog import read_metrics
from fv_core.training.trainer import Trainer

Make = Callable[..., Trainer]


def card_of(run: Path) -> ModelCard:
    return read_model(run / "model", lambda base: CARD)


def made_of(run: Path) -> Provenance:
    made = card_of(run).recipe.made
    assert made is not None
    return made


def test_a_run_tells_its_data_seed_steps_and_last_figures(make: Make) -> None:
    trainer = make(train={"seed": 5, "steps": 3})
    trainer.fit()
    made, last = made_of(trainer.run), read_metrics(trainer.run)[-1]
    assert (made.parents, made.data, made.steps, made.seed) == ((), "memory", 3, 5)
    assert made.figures == {f"student/{name}": last[name] for name in ("loss", "lr", "grad_norm")}
    shown = "\n".join(card_lines(card_of(trainer.run), Presence.EMBEDDED))
    assert "3 steps, seed 5" in shown and f"memory, digest {made.data_digest}" in shown
    assert "none: it began as its components are initialised" in shown
    assert "a program began it" not in "\n".join(card_lines(CARD, Presence.EMBEDDED))


def test_the_same_settings_give_the_same_recipe_and_other_data_another_digest(tmp_path: Path) -> None:
    def made(name: str, **data: float) -> Provenance:
        trainer = tiny_run(tmp_path / name, data=data)
        with trainer.setup.engine:
            trainer.fit()
        return made_of(tmp_path / name)

    assert made("one") == made("again")
    assert made("one2").data_digest != made("other", caption_dropout=0.1).data_digest


def test_a_run_on_a_run_names_both_and_its_files(make: Make, tmp_path: Path) -> None:
    first = make()
    first.fit()
    second = tiny_run(tmp_path / "second", card=card_of(first.run))
    with second.setup.engine:
        second.fit()
    third_card = derive(card_of(second.run), model_id="testing/second")
    third = tiny_run(tmp_path / "third", card=third_card)
    with third.setup.engine:
        third.fit()
    (parent,) = made_of(second.run).parents
    name, _, print_ = parent.partition(" ")
    assert name == "testing/run" and len(print_) == 12
    nearest, oldest = made_of(third.run).parents
    assert nearest.startswith("testing/second ") and oldest == parent


def test_what_was_typed_is_told() -> None:
    assert _command(Path("a b.toml"), ["train.lr=1e-5"], "latest") == (
        "fv train 'a b.toml' train.lr=1e-5 --resume latest"
    )
    assert _command(Path("a.toml"), {"train.steps": 2}, None) == "fv train a.toml train.steps=2"


def test_the_file_beside_the_weights_has_it(make: Make) -> None:
    trainer = make()
    trainer.fit()
    stored = json.loads((trainer.run / "model" / FILE).read_text())["recipe"]["made"]
    assert stored["data"] == "memory" and len(stored["data_digest"]) == 64
