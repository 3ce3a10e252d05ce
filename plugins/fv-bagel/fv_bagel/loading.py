"""Factories of the components: built without weights and filled by core's strict reader from the published folder.

Of `ema.safetensors` the mixture and the vision tower read a part each; `ae.safetensors` has keys of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL
from diffusers.models.embeddings import get_2d_sincos_pos_embed
from torch import nn
from transformers import Qwen2Config, Qwen2TokenizerFast, SiglipVisionConfig
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

from fv_bagel.components import MixtureModel, Vae, VisionModel
from fv_bagel.grid import Fit
from fv_bagel.keys import published
from fv_bagel.mot import Mixture, PositionTable
from fv_bagel.text import MARKS, Words
from fv_bagel.vision import Vision
from fv_core.card import LoadContext
from fv_core.errors import WeightsError

_ASSETS = Path(__file__).parent / "assets"
_OF_VISION = ("vit_model", "connector", "vit_pos_embed")
_OF_MIXTURE = ("language_model", "vae2llm", "llm2vae", "time_embedder", "latent_pos_embed")


def mixture(context: LoadContext) -> MixtureModel:
    """The language model with its two experts, the way of latents in and out, and the tokenizer."""
    params, config = context.spec.params, llm_config(context)
    patch, side = int(params["latent_patch"]), int(params["latent_side"])
    with torch.device("meta"):
        module = Mixture(config, latent_width=int(params["latent_channels"]) * patch**2, latent_side=side)
    module.language_model.model.rotary_emb = Qwen2RotaryEmbedding(config)  # its table is in no file
    module = context.fill(module, others=_OF_VISION, initialise=_initialise)
    root = _ASSETS / "tokenizer" if context.folder is None else context.folder
    return MixtureModel(module, _words(root, config.vocab_size), latent_patch=patch, latent_side=side)


def vision(context: LoadContext) -> VisionModel:
    """The vision tower without its last layer, as the model was trained, and the connector."""
    params, given = context.spec.params, context.config("vit_config.json")
    layers = int(str(given["num_hidden_layers"])) - 1
    config = SiglipVisionConfig(**{**given, "num_hidden_layers": layers}, attn_implementation="sdpa")
    side = int(params["side"])
    with torch.device("meta"):
        module = Vision(config, side=side, width=int(params["width"]))
    module = context.fill(module, others=_OF_MIXTURE, initialise=_initialise)
    patch = config.patch_size
    fit = Fit(stride=patch, smallest=int(params["smallest"]), largest=side * patch)
    return VisionModel(module, patch=patch, side=side, fit=fit)


def vae(context: LoadContext) -> Vae:
    """The image autoencoder. Its file holds the attention's projections as convolutions of one pixel."""
    with torch.device("meta"):
        module = AutoencoderKL.from_config(dict(context.spec.config))
    if context.folder is None:
        return Vae(context.fill(module, initialise=_initialise))
    projections = [
        layer
        for name, layer in module.named_modules()
        if "attentions" in name and isinstance(layer, nn.Linear)
    ]
    for layer in projections:
        layer.weight = nn.Parameter(layer.weight[..., None, None], requires_grad=False)
    module = context.fill(module, names=published(module))
    for layer in projections:
        layer.weight = nn.Parameter(layer.weight[..., 0, 0], requires_grad=False)
    return Vae(module)


def llm_config(context: LoadContext) -> Qwen2Config:
    """What the folder says of the language model. Norms on queries and keys, and untied heads, are the classes' own.

    Raises:
        WeightsError: FV254, the folder scales its rotary positions, which the published model does not.
    """
    given: dict[str, Any] = context.config("llm_config.json")
    theta, scaling = given.pop("rope_theta"), given.pop("rope_scaling", None)
    if scaling is not None:
        raise WeightsError(
            "FV254",
            name=f"{context.folder}/llm_config.json",
            rule=f"rope_scaling is {scaling}, the model has none",
            remedy="Use the checkpoint that the card was made for.",
        )
    return Qwen2Config(**given, rope_parameters={"rope_type": "default", "rope_theta": theta})


def _words(folder: Path, vocabulary: int) -> Words:
    """The tokenizer of a folder. Where files are missing transformers makes one up and says nothing.

    Raises:
        WeightsError: FV252 a file is missing, FV254 it lacks a mark or has tokens that the model does not know.
    """
    path = folder / "tokenizer.json"
    for needed in (path, folder / "tokenizer_config.json"):
        if not needed.is_file():
            raise _unfit("FV252", needed, "the file is missing")
    tokenizer = Qwen2TokenizerFast.from_pretrained(folder, local_files_only=True)
    if absent := [mark for mark in MARKS if mark not in tokenizer.get_vocab()]:
        raise _unfit("FV254", path, f"it lacks the marks {', '.join(absent)}")
    if len(tokenizer) > vocabulary:
        raise _unfit("FV254", path, f"it has {len(tokenizer)} tokens, the model knows {vocabulary}")
    return Words(tokenizer)


def _unfit(code: str, path: Path, rule: str) -> WeightsError:
    return WeightsError(
        code, name=str(path), rule=rule, remedy="Use the tokenizer of the model's own checkpoint."
    )


def _initialise(module: nn.Module) -> None:
    """The classes' own initialisation, and sine and cosine tables of positions."""
    for part in module.modules():
        if isinstance(part, PositionTable):
            side = round(len(part.pos_embed) ** 0.5)
            table = get_2d_sincos_pos_embed(part.pos_embed.shape[1], side, base_size=side, output_type="pt")
            part.pos_embed.copy_(table)
        elif callable(reset := getattr(part, "reset_parameters", None)):
            reset()
    for name, parameter in module.named_parameters():
        if name.endswith("weight") and parameter.ndim == 1:
            parameter.fill_(1.0)
