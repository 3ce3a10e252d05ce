"""LoRA (F6): the factors alone are trained, nothing is changed at first, and a file of them serves what was trained."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import fv_core.training.lora as lora
from fv_core import Adapter, Engine, OutputSpec, Request
from fv_core.card import AdapterNames, ModelCard, derive
from fv_core.errors import TrainError
from fv_core.testing.tiny import CARD
from fv_core.testing.training import tiny_run
from fv_core.training.export import averaged
from fv_core.training.trainer import Trainer

NAMES = AdapterNames(prefixes=("denoiser.", "diffusion_model."), original={"text": "prompt.in"})
LORA = {"rank": 4, "alpha": 8, "targets": ["text"]}


def adaptable(names: AdapterNames = NAMES) -> ModelCard:
    denoiser = replace(CARD.components["denoiser"], adapters=names)
    return derive(CARD, components={**CARD.components, "denoiser": denoiser})


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    torch.set_num_threads(1)
    made: list[Trainer] = []

    def make(**settings: Mapping[str, Any]) -> Trainer:
        given: dict[str, Any] = {"lora": LORA, "train": {"steps": 6, "lr": 0.05}, **settings}
        made.append(tiny_run(tmp_path / "run", card=adaptable(), **given))
        return made[-1]

    yield make
    for one in made:
        one.setup.engine.close()


def latent(engine: Engine, *adapters: Adapter) -> Tensor:
    clip = engine.run(
        Request(
            prompt="a clip",
            model=CARD.model_id,
            seed=1,
            size=(16, 16),
            frames=5,
            steps=3,
            adapters=adapters,
            output=OutputSpec(keep=("latent",)),
        )
    )
    return clip.tensors["latent"]


def test_nothing_is_changed_at_first_and_only_factors_are_trained(run: Callable[..., Trainer]) -> None:
    trainer = run()
    with Engine([adaptable()], device="cpu") as plain:
        assert torch.equal(latent(trainer.setup.engine), latent(plain))
    module = trainer.setup.model.module("denoiser")
    before = {name: one.detach().clone() for name, one in module.named_parameters()}
    trainer.fit()
    moved = {name for name, one in module.named_parameters() if not torch.equal(one.detach(), before[name])}
    assert moved == {name for name in before if "lora_" in name} == set(lora.factor_names(module))
    assert {name for name, one in module.named_parameters() if one.grad is not None} == moved


def test_factors_that_do_not_begin_at_zero_are_seen(run: Callable[..., Trainer]) -> None:
    trainer = run()
    with Engine([adaptable()], device="cpu") as plain, torch.no_grad():
        for name, one in trainer.setup.model.module("denoiser").named_parameters():
            if "lora_B" in name:
                one.add_(0.1)
        assert not torch.equal(latent(trainer.setup.engine), latent(plain))


def test_a_file_of_the_factors_serves_what_was_trained(run: Callable[..., Trainer], tmp_path: Path) -> None:
    """With an alpha that is not the rank; leaving it out is the control."""
    trainer = run(train={"steps": 6, "lr": 0.05, "ema": 0.5})
    trainer.fit()
    trainer.setup.model.instance.weights_changed()
    with averaged(trainer.state):
        trained = latent(trainer.setup.engine)
    file = trainer.run / "lora.safetensors"
    with Engine([adaptable()], device="cpu") as plain:
        served, base = latent(plain, Adapter(path=str(file))), latent(plain)
        half = latent(plain, Adapter(path=str(file), scale=0.5))
    assert (served - trained).abs().max() < 1e-6
    assert (base - trained).abs().max() > 1e-3 and (half - trained).abs().max() > 1e-4


def test_merged_equals_apart(run: Callable[..., Trainer]) -> None:
    trainer = run()
    trainer.fit()
    trainer.setup.model.instance.weights_changed()
    apart = latent(trainer.setup.engine)
    with Engine([adaptable()], device="cpu", weights=trainer.run / "model") as merged:
        assert (latent(merged) - apart).abs().max() < 1e-6


def test_a_run_with_factors_goes_on_to_the_same_bits(run: Callable[..., Trainer]) -> None:
    straight = run()
    straight.fit()
    expected = [one.detach().clone() for one in straight.state.roles["student"].values()]
    shutil.rmtree(straight.run)
    run(train={"steps": 3, "lr": 0.05}).fit()
    again = run()
    again.fit("3")
    assert all(
        torch.equal(one, was)
        for one, was in zip(again.state.roles["student"].values(), expected, strict=True)
    )


def test_the_names_that_comfyui_reads(run: Callable[..., Trainer]) -> None:
    trainer = run()
    trainer.fit()
    tensors = load_file(trainer.run / "lora.safetensors")
    assert set(tensors) == {"denoiser.text.lora_A.weight", "denoiser.text.lora_B.weight"}
    assert set(lora.respelled(adaptable(), tensors)) == {
        "diffusion_model.prompt.in.lora_A.weight",
        "diffusion_model.prompt.in.lora_B.weight",
    }
    nameless = adaptable(AdapterNames(prefixes=("denoiser.",)))
    with pytest.raises(TrainError, match=r"FV704 .*that ComfyUI reads"):
        lora.respelled(nameless, tensors)


def test_layers_that_there_are_not_are_refused(run: Callable[..., Trainer]) -> None:
    with pytest.raises(TrainError, match=r"FV704 lora\.targets 'to_q': names no linear layer of denoiser"):
        run(lora={"targets": ["to_q"]})


def test_a_library_that_is_not_there_is_named(
    run: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(TrainError, match=r"FV706 .*needs peft"):
        run()
