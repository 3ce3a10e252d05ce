"""Factories of the components: the real classes, built without weights and filled by core's strict reader."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import torch
from diffusers import AutoencoderKLWan, Cosmos3AVAEAudioTokenizer, Cosmos3OmniTransformer
from diffusers.models.transformers.transformer_cosmos3 import Cosmos3VLTextRotaryEmbedding
from torch import nn
from torch.nn.utils import remove_weight_norm
from transformers import AutoTokenizer

from fv_core.card import LoadContext
from fv_cosmos3.autoencoder import SoundDecoder, Vae
from fv_cosmos3.transformer import Transformer

_ASSETS = Path(__file__).parent / "assets"


def transformer(context: LoadContext) -> Transformer:
    """The transformer, with the modules that the class keeps in fp32 at any precision, and its tokenizer."""
    with torch.device("meta"):
        module = Cosmos3OmniTransformer.from_config(context.config())
    config = module.config
    # The rotary table is a buffer that no file holds.
    module.rotary_emb = Cosmos3VLTextRotaryEmbedding(config.head_dim, config.rope_theta, config.rope_axes_dim)
    kept = () if context.dtype is torch.float32 else tuple(module._keep_in_fp32_modules)
    module = context.fill(module, keep_fp32=kept, initialise=_initialise)
    folder = _ASSETS / "tokenizer" if context.folder is None else context.folder / context.spec.subfolders[1]
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return Transformer(module, tokenizer, int(context.spec.params["compression"]))


def vae(context: LoadContext) -> Vae:
    """The causal video autoencoder."""
    with torch.device("meta"):
        module = AutoencoderKLWan.from_config(context.config())
    return Vae(context.fill(module, initialise=_initialise))


def sound(context: LoadContext) -> SoundDecoder:
    """The sound decoder alone: a checkpoint may hold an encoder beside it, which nothing here reads."""
    config = {**context.config(), "encoder_enabled": False}
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the class, for the way it normalises weights
        module = Cosmos3AVAEAudioTokenizer.from_config(config)
    return SoundDecoder(_folded(context.fill(module, others=("encoder",), initialise=_initialise)))


def _folded(module: Cosmos3AVAEAudioTokenizer) -> Cosmos3AVAEAudioTokenizer:
    """Without weight norm, which makes every weight anew in each forward and keeps it beside its factors."""
    for part in list(module.modules()):
        if hasattr(part, "weight_g"):
            remove_weight_norm(part)
    return module.requires_grad_(False)


def _initialise(module: nn.Module) -> None:
    """The classes' own initialisation, for the parameters that `reset_parameters` does not reach too."""
    for part in module.modules():
        if callable(reset := getattr(part, "reset_parameters", None)):
            reset()
    directions = dict(module.named_parameters())
    for name, parameter in directions.items():
        leaf = name.rpartition(".")[2]
        if leaf in ("audio_modality_embed", "action_modality_embed"):
            parameter.normal_(std=0.02)
        elif leaf == "weight_v":
            bound = 1 / math.sqrt(parameter[0].numel())
            parameter.uniform_(-bound, bound)
        elif leaf in ("alpha", "beta"):
            parameter.zero_()
        elif leaf == "gamma" or (leaf == "weight" and parameter.ndim == 1):
            parameter.fill_(1.0)
        elif leaf == "bias" and parameter.isnan().any():
            parameter.zero_()
    for name, parameter in directions.items():
        if name.endswith("weight_g"):
            weight = directions[name.removesuffix("_g") + "_v"]
            parameter.copy_(torch.linalg.vector_norm(weight.flatten(1), dim=1).view(parameter.shape))
