"""The method `vae`: formulas against closed forms, what the decoder is shown when, a real autoencoder that learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from fv_core.card import Defaults, Method, derive
from fv_core.errors import TrainError
from fv_core.request import Size
from fv_core.training.config import config_of
from fv_core.training.contract import Pixels
from fv_core.training.methods import vae
from fv_core.training.runlog import read_metrics
from fv_core.training.setup import set_up
from fv_core.training.trainer import Trainer
from fv_wan21.card import CARDS

CARD = derive(
    next(card for card in CARDS if card.recipe.method is Method.UNTRAINED),
    defaults=Defaults(size=Size(16, 16), frames=5, fps=8.0),
)


def third_of_means(clips: Tensor) -> Tensor:
    """A teacher: each latent cell, in all channels, is a third of the mean of its picture."""
    means = clips[:, :, ::4].mean(dim=(1, 3, 4)) / 3
    return means[:, None, :, None, None].expand(-1, 16, -1, 2, 2)


TEACHER = f"{__name__}:third_of_means"


def run(folder: Path, method: dict[str, Any], **train: Any) -> Trainer:
    config = config_of(
        {
            "model": CARD.model_id,
            "weights": "seed",
            "method": {"name": "vae", **method},
            "data": {"name": "shapes", "clips": 8},
            "save": {"dir": str(folder)},
            "train": {"steps": 2, "batch": 2, "lr": 2e-3, **train},
        }
    )
    return Trainer(config, set_up(config, card=CARD))


def test_the_divergence_is_that_of_two_normal_distributions() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, logvar, centre = torch.randn(3, 50, generator=generator, dtype=torch.float64)
    exact = kl_divergence(Normal(mean, torch.exp(0.5 * logvar)), Normal(centre, 0.3))
    assert torch.allclose(vae.kl_divergence(mean, logvar, centre, 0.3), exact)
    assert vae.kl_divergence(centre, torch.zeros_like(centre), centre, 1.0).abs().max() == 0


def test_pixels_off_the_median_colour_weigh_more() -> None:
    clips = torch.full((1, 3, 2, 4, 4), -1.0)
    clips[:, 0, 1, 2, 3] = 0.5
    weight = vae.subject_weight(clips, 4.0)
    assert weight.sum() == 31 + 4 and weight[0, 0, 1, 2, 3] == 4


def test_pixels_are_scaled_as_the_pipeline_has_them() -> None:
    clip = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 4, 6, 3)
    found = vae.pixels([clip, clip])
    assert found.shape == (2, 3, 2, 4, 6)
    assert (found[:, :, 0] == -1).all() and (found[:, :, 1] == 1).all()


@pytest.mark.parametrize("bootstrap", [0, 1])
def test_the_decoder_is_shown_the_prior_first_and_the_posterior_then(
    tmp_path: Path, bootstrap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = run(tmp_path, {"teacher": TEACHER, "bootstrap": bootstrap, "spread": 1e-4})
    module = trainer.setup.model.module("vae")
    shown: list[Tensor] = []
    decode = cast(Any, module).decode

    def watched(latents: Tensor) -> Any:
        shown.append(latents.detach())
        return decode(latents)

    monkeypatch.setattr(module, "decode", watched)
    with trainer.setup.engine, trainer.batches() as batches:
        steps = [batches.of(step) for step in (0, 1)]
        for step in steps:
            trainer.gradients(trainer.state.roles[vae.AUTOENCODER], step)
    clips = [vae.pixels([cast(Pixels, one.content).frames for one in step[0].samples]) for step in steps]
    gaps = [latents - third_of_means(clip) for latents, clip in zip(shown, clips, strict=True)]
    assert [float(gap.abs().max()) < 1e-3 for gap in gaps] == [bootstrap == 1, False]


def test_a_real_encoder_learns_the_teachers_latents(tmp_path: Path) -> None:
    method = {"teacher": TEACHER, "spread": 0.3, "kl": 0.01, "subject": 2.0}
    trainer = run(tmp_path, method, steps=25, batch=2, lr=1e-2)
    with trainer.setup.engine:
        trainer.fit()
    told = read_metrics(tmp_path)
    assert len(told) == 25 and all("psnr" in row for row in told)
    assert float(told[-1]["kl"]) < 0.2 * float(told[0]["kl"])


@pytest.mark.parametrize("keys", [{"spread": 0.0}, {"kl": -1.0}, {"subject": 0.0}, {"bootstrap": 5}])
def test_settings_that_mean_nothing_are_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(TrainError) as caught:
        run(tmp_path, keys)
    assert caught.value.code == "FV701"
