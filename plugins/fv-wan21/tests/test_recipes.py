"""The recipe of the tiny model: its beginnings, and both of its trainings in smoke form (docs/tiny-model.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from diffusers import WanTransformer3DModel
from torch import Tensor

import fv_wan21
from fv_core.training.config import load_config
from fv_core.training.run import train
from fv_core.training.runlog import read_metrics
from fv_wan21 import tiny
from fv_wan21.card import TINY

RECIPES = Path(fv_wan21.__file__).parent / "recipes"


@pytest.fixture(scope="module", autouse=True)
def quickly_fitted() -> Iterator[None]:
    """The codec of fewer scenes than the recipe's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "_SCENES", 20)
        tiny.codec.cache_clear()
        yield
    tiny.codec.cache_clear()


@pytest.mark.parametrize("name", ["tiny-vae", "tiny"])
def test_a_recipe_runs_in_smoke_form(name: str, tmp_path: Path) -> None:
    overrides = {"train.steps": 2, "train.batch": 2, "data.clips": 4, "save.dir": str(tmp_path / "run")}
    result = train(RECIPES / f"{name}.toml", overrides=overrides)
    losses = [float(row["loss"]) for row in read_metrics(result.folder)]
    assert len(losses) == 2 and all(0 < loss < 10 for loss in losses)


def test_the_recipes_begin_from_nothing() -> None:
    """So that what they come to is theirs, with seeds that are stated."""
    for name in ("tiny-vae", "tiny"):
        config = load_config(RECIPES / f"{name}.toml")
        assert (config.model, config.weights, config.train.seed) == (TINY.model_id, "seed", 0)
        assert tuple(config.data["words"]) == tiny.WORDS


def test_the_codecs_channels_are_orthonormal_and_of_unit_variance() -> None:
    codec = tiny.codec(channels=24)
    eye = codec.basis.T @ codec.basis
    assert torch.allclose(eye, torch.eye(24), atol=1e-4)
    assert (codec.basis.gather(0, codec.basis.abs().argmax(0, keepdim=True)) > 0).all()
    assert (codec.std[:-1] >= codec.std[1:]).all() and codec.std[-1] > 0


def test_the_first_picture_is_coded_as_four_of_it() -> None:
    """Else a latent frame would mean one thing at the beginning and another later on."""
    still = torch.rand(1, 3, 1, 64, 64).expand(-1, -1, 9, -1, -1) * 2 - 1
    latents = tiny.teacher(still)
    assert latents.shape == (1, 24, 3, 4, 4)
    assert torch.allclose(latents[:, :, 0], latents[:, :, 1], atol=1e-4)
    assert torch.allclose(latents[:, :, 0], latents[:, :, 2], atol=1e-4)


def begun() -> WanTransformer3DModel:
    transformer = WanTransformer3DModel.from_config(dict(TINY.components["transformer"].config))
    with torch.no_grad():
        tiny.initialise_transformer(transformer, torch.Generator().manual_seed(0))
    return transformer


def test_input_and_output_layers_are_tied_and_keep_lengths() -> None:
    transformer = begun()
    embedding = transformer.patch_embedding.weight.flatten(1)
    assert torch.allclose(embedding.T @ embedding, torch.eye(24), atol=1e-5)
    assert torch.equal(transformer.proj_out.weight, 0.5 * embedding.T)


def logits(transformer: WanTransformer3DModel, block: int) -> Tensor:
    """Attention logits [heads, 48, 48] on a grid of 3x4x4 tokens that hold nothing."""
    attention = transformer.blocks[block].attn1
    nothing = torch.zeros(1, 48, 192)
    cos, sin = transformer.rope(torch.zeros(1, 24, 3, 4, 4))

    def turned(vectors: Tensor) -> Tensor:
        first, second = vectors.unflatten(2, (4, 48)).unflatten(-1, (-1, 2)).unbind(-1)
        c, s = cos[..., 0::2], sin[..., 1::2]
        return torch.stack([first * c - second * s, first * s + second * c], -1).flatten(-2)

    query = turned(attention.norm_q(attention.to_q(nothing)))
    key = turned(attention.norm_k(attention.to_k(nothing)))
    return torch.einsum("bqhd,bkhd->hqk", query, key)


@pytest.mark.parametrize("block", range(4))
def test_three_heads_of_four_begin_by_looking_at_one_neighbour(block: int) -> None:
    with torch.no_grad():
        found = logits(begun(), block)
    places = torch.cartesian_prod(torch.arange(3), torch.arange(4), torch.arange(4))
    inner = [i for i, (t, h, w) in enumerate(places.tolist()) if t == 1 and 0 < h < 3 and 0 < w < 3]
    for head in range(3):
        offsets = {tuple((places[found[head, i].argmax()] - places[i]).tolist()) for i in inner}
        assert len(offsets) == 1 and max(map(abs, *offsets)) <= 1
    assert found[3].abs().max() < 1e-4
