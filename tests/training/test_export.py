"""A run's folder is a model: what serves is what was trained (I5); what is not read back equal is not written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import fv_core.runtime.intake as intake
import fv_core.training.export as export
from fv_core import Engine, Request
from fv_core.card import Method
from fv_core.errors import FvError, TrainError
from fv_core.plugins.model_folder import FILE, model_folder, read_model
from fv_core.testing.tiny import CARD
from fv_core.training.export import averaged, check_model_folder, write_model_folder
from fv_core.training.model import TrainedModel
from fv_core.training.trainer import Trainer
from fv_core.weights.write import weights_of

Make = Callable[..., Trainer]


def velocity(trainer: Trainer) -> torch.Tensor:
    model = trainer.setup.model
    latents = torch.ones(1, 4, 2, 2, 2)
    return model.velocity(latents, [0.5], model.encode(["a clip"], grad=False), grad=False)


def test_serving_a_run_equals_its_averaged_weights(make: Make) -> None:
    """I5, with the raw weights as the control."""
    trainer = make(train={"ema": 0.5, "steps": 4})
    trainer.fit()
    card = read_model(trainer.run / "model", lambda base: CARD)
    assert (card.model_id, card.recipe.method) == ("testing/run", Method.FINETUNE)
    with averaged(trainer.state):
        trained = velocity(trainer)
    raw = velocity(trainer)
    with Engine([card], device="cpu") as engine:
        model = TrainedModel(engine.instance(card.model_id))
        again = model.velocity(
            torch.ones(1, 4, 2, 2, 2), [0.5], model.encode(["a clip"], grad=False), grad=False
        )
        clip = engine.run(
            Request(prompt="a clip", model=card.model_id, seed=1, size=(16, 16), frames=5, steps=2)
        )
    assert torch.equal(again, trained) and not torch.equal(again, raw)
    assert clip.frames.shape == (5, 16, 16, 3)


def test_averages_leave_the_weights_as_they_were(make: Make) -> None:
    trainer = make(train={"ema": 0.5})
    trainer.fit()
    before = [one.detach().clone() for one in trainer.state.roles["student"].values()]
    with pytest.raises(RuntimeError), averaged(trainer.state):
        raise RuntimeError
    assert all(
        torch.equal(one, was)
        for one, was in zip(trainer.state.roles["student"].values(), before, strict=True)
    )


def test_what_is_not_read_back_equal_is_not_written(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    instance, folder = trainer.setup.model.instance, trainer.run.parent / "out"
    original = weights_of

    def other(module: torch.nn.Module) -> dict[str, torch.Tensor]:
        return {name: tensor + 1 for name, tensor in original(module).items()}

    calls = iter((other, other, other))  # of what is written; then come those of the comparison
    monkeypatch.setattr(export, "weights_with_lora", lambda module: next(calls, original)(module))
    with pytest.raises(TrainError, match="FV707"):
        write_model_folder(folder, instance, summary="")
    assert not folder.exists() and not list(folder.parent.glob(".out*"))


def test_half_precision_is_checked_in_half_precision(make: Make) -> None:
    trainer = make()
    folder = write_model_folder(
        trainer.run.parent / "half", trainer.setup.model.instance, summary="", dtype=torch.bfloat16
    )
    check_model_folder(folder, trainer.setup.model.instance, torch.bfloat16)
    with pytest.raises(TrainError, match="FV707"):
        check_model_folder(folder, trainer.setup.model.instance, torch.float32)


def test_a_folder_names_a_card_and_no_code(make: Make) -> None:
    trainer = make()
    trainer.fit()
    run = str(trainer.run)
    assert model_folder(run) == trainer.run / "model" == model_folder(f"{run}/model")
    assert model_folder("wan21/micro") is None and model_folder("\0") is None
    file = trainer.run / "model" / FILE
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "components": {"text": "os:system"}}))
    with pytest.raises(FvError, match=r"FV253 .*unknown \['components'\]"):
        read_model(trainer.run / "model", lambda base: CARD)


def test_validation_changes_nothing_and_shows_the_weights_so_far(make: Make, tmp_path: Path) -> None:
    plain = make(train={"ema": 0.5, "steps": 4, "lr": 0.1})
    plain.fit()
    shutil.rmtree(plain.run)
    shown = make(
        train={"ema": 0.5, "steps": 4, "lr": 0.1},
        method={"components": ["denoiser"]},
        validate={"every": 2, "prompts": ["a clip"], "steps": 2, "size": [16, 16], "frames": 5},
    )
    shown.fit()
    for one, other in zip(
        plain.state.roles["student"].values(), shown.state.roles["student"].values(), strict=True
    ):
        assert torch.equal(one, other)
    clips = sorted((shown.run / "samples").glob("*/*.mp4"))
    assert [str(path.relative_to(shown.run)) for path in clips] == [
        "samples/00000002/000.mp4",
        "samples/00000004/000.mp4",
    ]
    assert clips[0].read_bytes() != clips[1].read_bytes()


def test_a_request_may_name_the_folder(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    trainer.fit()
    card = read_model(trainer.run / "model", lambda base: CARD)
    monkeypatch.setattr(intake, "find_card", lambda name: card)
    with Engine([card], device="cpu") as engine:
        clip = engine.run(Request(prompt="a clip", model=str(trainer.run), size=(16, 16), frames=5, steps=2))
    assert clip.used.model == card.model_id
