"""Factories of the components: the real classes, built without weights and filled by core's strict reader."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed
from torch import nn
from transformers import AutoTokenizer, UMT5Config, UMT5EncoderModel

from fv_core.card import LoadContext
from fv_core.errors import WeightsError
from fv_wan21.components import Denoiser, TextEncoder, Vae

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
    params = context.spec.params
    root = _ASSETS / str(params.get("assets", "")) if context.folder is None else context.folder
    tokenizer = _tokenizer(root / "tokenizer", module.config.vocab_size)
    return TextEncoder(module, tokenizer, int(params["max_length"]), draws=str(params.get("draws", "")))


def _tokenizer(folder: Path, vocabulary: int) -> Any:
    """The tokenizer of a folder, fit to pad prompts for an encoder of `vocabulary` tokens.

    Where files are missing transformers makes one up, of no words or without padding, and says nothing.
    """
    config, words = folder / "tokenizer_config.json", folder / "tokenizer.json"
    for path in (config, words):
        if not path.is_file():
            raise _unfit("FV252", path, "the file is missing")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if tokenizer.pad_token_id is None:
        raise _unfit("FV253", config, "it names no padding token")
    if len(tokenizer) > vocabulary:
        raise _unfit("FV254", words, f"it has {len(tokenizer)} tokens, the text encoder knows {vocabulary}")
    return tokenizer


def _unfit(code: str, path: Path, rule: str) -> WeightsError:
    return WeightsError(
        code, name=str(path), rule=rule, remedy="Use the tokenizer of the model's own checkpoint."
    )


def denoiser(context: LoadContext) -> Denoiser:
    """The transformer, with the modules that the class keeps in fp32 at any precision."""
    with torch.device("meta"):
        module = WanTransformer3DModel.from_config(context.config())
    config = module.config
    # Rotary tables are buffers that no file holds.
    module.rope = WanRotaryPosEmbed(config.attention_head_dim, config.patch_size, config.rope_max_seq_len)
    kept = () if context.dtype is torch.float32 else tuple(module._keep_in_fp32_modules)
    return Denoiser(context.fill(module, keep_fp32=kept, initialise=_initialise))


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
