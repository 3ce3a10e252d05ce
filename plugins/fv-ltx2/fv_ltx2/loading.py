"""Factories of the components: the real classes, built without weights and filled by core's strict reader."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from diffusers import AutoencoderKLLTX2Audio, AutoencoderKLLTX2Video, LTX2VideoTransformer3DModel
from diffusers.pipelines.ltx2.connectors import LTX2TextConnectors
from diffusers.pipelines.ltx2.latent_upsampler import BlurDownsample, LTX2LatentUpsamplerModel
from diffusers.pipelines.ltx2.vocoder import DownSample1d, LTX2VocoderWithBWE, UpSample1d
from torch import nn
from transformers import AutoTokenizer, Gemma3TextConfig, Gemma3TextModel
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

from fv_core.card import LoadContext
from fv_ltx2.audio import AudioVae, Vocoder
from fv_ltx2.statistics import LatentStatistics, MeanAndSpread, Statistics, made
from fv_ltx2.text import Connectors, TextEncoder
from fv_ltx2.transformer import Transformer
from fv_ltx2.video import Upsampler, Vae

_ASSETS = Path(__file__).parent / "assets"


def text_encoder(context: LoadContext) -> TextEncoder:
    """Gemma 3 with its tokenizer, without its eyes: a checkpoint's vision tower is left where it is."""
    config = context.config()
    text = config.get("text_config", config)
    assert isinstance(text, dict)
    settled = Gemma3TextConfig(**text)
    with torch.device("meta"):
        module = Gemma3TextModel(settled)
    module.rotary_emb = Gemma3RotaryEmbedding(settled)  # buffers that no file holds
    module.embed_tokens.embed_scale = torch.tensor(module.embed_tokens.scalar_embed_scale)
    module = context.fill(
        module,
        names={name: f"language_model.model.{name}" for name, _ in module.named_parameters()},
        others=("vision_tower", "multi_modal_projector", "language_model.lm_head"),
        initialise=_initialise,
    )
    root = _ASSETS if context.folder is None else context.folder
    tokenizer = AutoTokenizer.from_pretrained(root / "tokenizer", local_files_only=True)
    return TextEncoder(module, tokenizer, int(context.spec.params["max_length"]))


def connectors(context: LoadContext) -> Connectors:
    """The text connectors of both modalities."""
    with torch.device("meta"):
        module = LTX2TextConnectors.from_config(context.config())
    return Connectors(context.fill(module, initialise=_initialise))


def transformer(context: LoadContext) -> Transformer:
    """The joint transformer."""
    with torch.device("meta"):
        module = LTX2VideoTransformer3DModel.from_config(context.config())
    return Transformer(context.fill(module, initialise=_initialise))


def vae(context: LoadContext) -> Vae:
    """The video autoencoder."""
    with torch.device("meta"):
        module = AutoencoderKLLTX2Video.from_config(context.config())
    _real_statistics(module)
    return Vae(context.fill(module, initialise=_initialise), int(context.spec.params["image_crf"]))


def upsampler(context: LoadContext) -> Upsampler:
    """The latent upsampler."""
    with torch.device("meta"):
        module = LTX2LatentUpsamplerModel.from_config(context.config())
    for part in list(module.modules()):
        if isinstance(part, BlurDownsample):
            part.kernel = BlurDownsample(dims=part.dims, stride=part.stride).kernel
    return Upsampler(context.fill(module, initialise=_initialise))


def audio_vae(context: LoadContext) -> AudioVae:
    """The audio autoencoder."""
    with torch.device("meta"):
        module = AutoencoderKLLTX2Audio.from_config(context.config())
    _real_statistics(module)
    return AudioVae(context.fill(module, initialise=_initialise))


def vocoder(context: LoadContext) -> Vocoder:
    """The vocoder with bandwidth extension."""
    with torch.device("meta"):
        module = LTX2VocoderWithBWE.from_config(context.config())
    for part in list(module.modules()):
        if isinstance(part, (DownSample1d, UpSample1d)) and part is not module.resampler:
            part.filter = type(part)(part.ratio, part.kernel_size).filter.to(context.dtype)
    module.resampler = UpSample1d(module.resampler.ratio, window_type="hann", persistent=False)
    _real_spectra(module, context.dtype)
    return Vocoder(context.fill(module, initialise=_initialise))


def statistics(context: LoadContext) -> Statistics:
    """The latent statistics out of the files of both autoencoders, which are the first two subfolders."""
    params, scaling = context.spec.params, context.config().get("scaling_factor", 1.0)
    assert isinstance(scaling, (int, float))
    module = LatentStatistics(
        video=MeanAndSpread(int(params["video_channels"])),
        audio=MeanAndSpread(int(params["audio_features"])),
        scaling=scaling,
    )
    for part, folder in zip((module.video, module.audio), context.spec.subfolders, strict=True):
        context.fill(part, subfolder=folder, others=("encoder", "decoder"))
    return Statistics(module.eval())


def _real_statistics(module: AutoencoderKLLTX2Video | AutoencoderKLLTX2Audio) -> None:
    """A folder overwrites them."""
    module.latents_mean, module.latents_std = made(len(module.latents_mean))


def _real_spectra(module: LTX2VocoderWithBWE, dtype: torch.dtype) -> None:
    """A windowed Fourier basis and triangles over it, of the type that samples have; a folder overwrites them."""
    stft = module.mel_stft.stft_fn
    count, _, length = stft.forward_basis.shape
    phase = 2 * math.pi * torch.arange(count // 2)[:, None] * torch.arange(length)[None, :] / length
    basis = torch.cat([phase.cos(), -phase.sin()]) * torch.hann_window(length)
    stft.forward_basis = basis.unsqueeze(1).to(dtype)
    stft.inverse_basis = torch.zeros_like(stft.forward_basis)
    bands, frequencies = module.mel_stft.mel_basis.shape
    centres = torch.linspace(0, frequencies - 1, bands)[:, None]
    distance = (torch.arange(frequencies)[None, :] - centres).abs() * bands / frequencies
    module.mel_stft.mel_basis = ((1 - distance).clamp(min=0) / frequencies).to(dtype)


def _initialise(module: nn.Module) -> None:
    """The classes' own initialisation, and something finite for the parameters that it does not reach."""
    for part in module.modules():
        if callable(reset := getattr(part, "reset_parameters", None)):
            reset()
    for name, parameter in module.named_parameters():
        leaf = name.rpartition(".")[2]
        if not parameter.isnan().any():
            continue
        if leaf in ("alpha", "beta", "bias"):
            parameter.zero_()
        elif parameter.ndim == 1:
            parameter.fill_(1.0)
        else:
            parameter.normal_().div_(math.sqrt(parameter.shape[-1]))
