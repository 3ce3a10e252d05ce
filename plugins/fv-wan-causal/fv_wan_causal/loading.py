"""Factories of the components: the real classes, built without weights and filled by core's strict reader."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from torch import nn
from transformers import AutoTokenizer, UMT5Config, UMT5EncoderModel

from fv_core.card import LoadContext
from fv_wan_causal.denoiser import Denoiser
from fv_wan_causal.text_encoder import TextEncoder
from fv_wan_causal.vae import Vae

_ASSETS = Path(__file__).parent / "assets"


def text_encoder(context: LoadContext) -> TextEncoder:
    """UMT5 encoder and its tokenizer. `wo` stays in fp32 for a float16 load only, as transformers has it."""
    with torch.device("meta"):
        module = UMT5EncoderModel(UMT5Config(**context.config()))
    module = context.fill(
        module,
        keep_fp32=("wo",) if context.dtype is torch.float16 else (),
        aliases={"encoder.embed_tokens.weight": "shared.weight"},
        initialise=_initialise,
    )
    root = _ASSETS if context.folder is None else context.folder
    tokenizer = AutoTokenizer.from_pretrained(root / "tokenizer", local_files_only=True)
    return TextEncoder(module, tokenizer, int(context.spec.params["max_length"]))


def denoiser(context: LoadContext) -> Denoiser:
    """The transformer, all of it in the run's precision: the reference casts the whole model.

    Its rotary tables are not used (angles are computed in fp64), so they are left out.
    """
    with torch.device("meta"):
        module = WanTransformer3DModel.from_config(context.config())
    module.rope = nn.Identity()
    return Denoiser(context.fill(module, initialise=_initialise))


def vae(context: LoadContext) -> Vae:
    """The causal video autoencoder."""
    with torch.device("meta"):
        module = AutoencoderKLWan.from_config(context.config())
    return Vae(context.fill(module, initialise=_initialise))


def _initialise(module: nn.Module) -> None:
    """The classes' own initialisation, for the parameters that `reset_parameters` does not reach too."""
    for part in module.modules():
        if callable(reset := getattr(part, "reset_parameters", None)):
            reset()
    for name, parameter in module.named_parameters():
        leaf = name.rpartition(".")[2]
        if leaf == "scale_shift_table":
            parameter.normal_().div_(math.sqrt(parameter.shape[-1]))
        elif leaf == "gamma" or (leaf == "weight" and parameter.ndim == 1):
            parameter.fill_(1.0)
        elif leaf == "bias" and parameter.isnan().any():
            parameter.zero_()
