"""A LoRA that fv trains on Wan: diffusers 0.42.1 computes the same with it, whatever names its file has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanTransformer3DModel
from diffusers.loaders.lora_conversion_utils import _convert_non_diffusers_wan_lora_to_diffusers
from safetensors.torch import load_file
from torch import Tensor
from transformers import UMT5EncoderModel

from fv_core.request import Size
from fv_core.testing.training import LatentSource
from fv_core.training.config import config_of
from fv_core.training.contract import Bucket, Latent, Sample
from fv_core.training.export import export_lora
from fv_core.training.setup import set_up
from fv_core.training.trainer import Trainer
from fv_wan21.card import MICRO


class Clips(LatentSource):
    """Latents of the smallest legal clip."""

    def sample(self, index: int, epoch: int) -> Sample:
        shape = MICRO.geometry(Size(16, 16), 5).latent
        mean = torch.randn(shape, generator=torch.Generator().manual_seed(index))
        return Sample(id=str(index), caption="a red circle", content=Latent(mean=mean))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    """Two steps, with an alpha that is not the rank."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("lora") / "run"
    config = config_of(
        {
            "model": MICRO.model_id,
            "weights": "seed",
            "method": {"name": "finetune"},
            "data": {"name": "memory"},
            "lora": {"rank": 4, "alpha": 16},
            "train": {"steps": 2, "batch": 2, "lr": 0.05},
            "save": {"dir": str(folder)},
        }
    )
    setup = set_up(config, source=Clips(buckets=(Bucket(frames=5, height=16, width=16),) * 4))
    with setup.engine:
        trainer = Trainer(config, setup)
        trainer.fit()
        yield trainer


@torch.no_grad()
def velocity(module: Any, trained: Trainer) -> Tensor:
    (cond,) = trained.setup.model.encode(["a red circle"], grad=False)
    latents = torch.ones(1, *MICRO.geometry(Size(16, 16), 5).latent)
    found: Tensor
    (found,) = module(
        hidden_states=latents,
        timestep=torch.tensor([500]),
        encoder_hidden_states=cond[None],
        return_dict=False,
    )
    return found


def reference(trained: Trainer) -> Any:
    """Diffusers' model with the weights that were not trained."""
    ours = trained.setup.model.module("transformer")
    module = WanTransformer3DModel.from_config(ours.config).eval()
    base = {
        name.replace(".base_layer.", "."): value
        for name, value in ours.state_dict().items()
        if ".lora_" not in name
    }
    module.load_state_dict(base)
    return module


@pytest.mark.parametrize("comfy", [False, True])
def test_diffusers_computes_the_same_with_the_file(trained: Trainer, tmp_path: Path, comfy: bool) -> None:
    file = export_lora(str(trained.run), tmp_path / "lora.safetensors", comfy=comfy)
    tensors = load_file(file)
    if comfy:
        assert any(name.startswith("diffusion_model.blocks.0.self_attn.q.") for name in tensors)
        tensors = _convert_non_diffusers_wan_lora_to_diffusers(tensors)
    module = reference(trained)
    plain, expected = velocity(module, trained), velocity(trained.setup.model.module("transformer"), trained)
    module.load_lora_adapter(tensors, prefix="transformer")
    found = velocity(module, trained)
    assert (found - expected).abs().max() < 1e-5 < 1e-3 < (plain - expected).abs().max()


def test_diffusers_reads_the_models_folder(trained: Trainer) -> None:
    """Merged: what diffusers reads from the run's folder computes what was trained."""
    module = WanTransformer3DModel.from_pretrained(trained.run / "model" / "transformer").eval()
    expected = velocity(trained.setup.model.module("transformer"), trained)
    assert (velocity(module, trained) - expected).abs().max() < 1e-5
    text = UMT5EncoderModel.from_pretrained(trained.run / "model" / "text_encoder")
    assert text.config.d_model == MICRO.components["text"].config["d_model"]
