"""The causal video autoencoder, chunk by chunk in both directions, and the sound decoder.

Reference: diffusers 0.42.1, `AutoencoderKLWan`, `Cosmos3AVAEAudioTokenizer`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from diffusers import AutoencoderKLWan, Cosmos3AVAEAudioTokenizer
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d, patchify, unpatchify
from torch import Tensor, nn

from fv_core.errors import RequestError
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import number, tensor, whole
from fv_core.request import Size
from fv_cosmos3 import frames as fitting
from fv_cosmos3.calls import OneByOne, Operation, size


class Vae(OneByOne):
    """The causal video autoencoder.

    pixels: row media uint8 [F, H, W, 3] or [H, W, 3], width, height, count, keep, tier, static fit; output pixels fp32
    [3, F, height, width]. encode: row pixels of one chunk, one `stream` cache appended; output features. latent: row
    features of all chunks [C, F, h, w], width, height; output latent fp32 [C, F, h, w], normalised.
    prepare: row latent [C, F, h, w], normalised; output latent in the decoder's own space. decode: row latent
    [C, 1, h, w], static first (bool), one `stream` cache appended; output frames fp32 [f, height, width, 3] in [0, 1].
    """

    def __init__(self, module: AutoencoderKLWan) -> None:
        self.module = module
        self._decoding = _causal_convolutions(module.decoder)
        self._encoding = _causal_convolutions(module.encoder)
        shape = (1, module.config.z_dim, 1, 1, 1)
        self._mean = torch.tensor(module.config.latents_mean).view(shape)
        self._inverse_std = 1.0 / torch.tensor(module.config.latents_std).view(shape)

    @property
    def operations(self) -> Mapping[str, Operation]:
        return {
            "pixels": self._pixels,
            "encode": self._encode,
            "latent": self._latent,
            "prepare": self._prepare,
            "decode": self._decode,
        }

    def _pixels(self, call: ResolvedCall) -> ComponentOutput:
        media, wanted, count = tensor(call, "media"), size(call), whole(call, "count")
        fit = call.static["fit"]
        if fit == "cover":
            pixels, notes = fitting.covering(media, wanted)
        elif fit == "stretch":
            pixels, notes = fitting.stretched(media, wanted, count, str(call.rows["keep"]))
        else:
            _check_exact(media, wanted)
            clip = media if media.ndim == 4 else media[None]
            pixels, notes = fitting.padded(clip, wanted, count, str(call.rows["tier"]))
        device = next(self.module.parameters()).device
        return ComponentOutput(output=CallOutput(tensors={"pixels": pixels.to(device)}, notes=notes))

    def _encode(self, call: ResolvedCall) -> ComponentOutput:
        (content,) = call.caches
        features = content or [None] * self._encoding
        pixels = tensor(call, "pixels").unsqueeze(0).to(self.module.dtype)
        if self.module.config.patch_size is not None:
            pixels = patchify(pixels, patch_size=self.module.config.patch_size)
        encoded: Tensor = self.module.encoder(pixels, feat_cache=features, feat_idx=[0])
        return ComponentOutput(output=CallOutput(tensors={"features": encoded[0]}), caches=(features,))

    def _latent(self, call: ResolvedCall) -> ComponentOutput:
        moments = self.module.quant_conv(tensor(call, "features").unsqueeze(0))
        mean, _ = moments.chunk(2, dim=1)
        latent = (mean - self._mean.to(mean)) * self._inverse_std.to(mean)
        cell, wanted = self.module.config.scale_factor_spatial, size(call)
        latent = latent[0, :, :, : wanted.height // cell, : wanted.width // cell].contiguous().float()
        return ComponentOutput(output=CallOutput(tensors={"latent": latent}))

    def _prepare(self, call: ResolvedCall) -> ComponentOutput:
        latent = tensor(call, "latent").unsqueeze(0).to(self.module.dtype)
        latent = latent / self._inverse_std.to(latent) + self._mean.to(latent)
        prepared: Tensor = self.module.post_quant_conv(latent)
        return ComponentOutput(output=CallOutput(tensors={"latent": prepared[0]}))

    def _decode(self, call: ResolvedCall) -> ComponentOutput:
        (content,) = call.caches
        features = content or [None] * self._decoding
        latent = tensor(call, "latent").unsqueeze(0)
        first = bool(call.static["first"])
        video = self.module.decoder(latent, feat_cache=features, feat_idx=[0], first_chunk=first)
        if self.module.config.patch_size is not None:
            video = unpatchify(video, patch_size=self.module.config.patch_size)
        video = (torch.clamp(video, min=-1.0, max=1.0) * 0.5 + 0.5).clamp(0, 1)
        frames = video[0].permute(1, 2, 3, 0).float()
        return ComponentOutput(output=CallOutput(tensors={"frames": frames}), caches=(features,))


class SoundDecoder(OneByOne):
    """Op `decode`: row latent [D, T], frames, fps; output audio fp32 [channels, samples] in [-1, 1].

    A latent is some milliseconds long, so the last one may reach past the end of the clip: what does is cut off.
    """

    def __init__(self, module: Cosmos3AVAEAudioTokenizer) -> None:
        self.module = module

    @property
    def operations(self) -> Mapping[str, Operation]:
        return {"decode": self._decode}

    def _decode(self, call: ResolvedCall) -> ComponentOutput:
        parameter = next(self.module.parameters())
        audio = self.module.decode(tensor(call, "latent").unsqueeze(0).to(parameter.dtype))[0].float()
        samples = int(whole(call, "frames") / number(call, "fps") * self.module.config.sampling_rate)
        return ComponentOutput(output=CallOutput(tensors={"audio": audio[:, :samples].contiguous()}))


def _check_exact(media: Tensor, wanted: Size) -> None:
    given = Size(media.shape[-2], media.shape[-3])
    if given != wanted:
        raise RequestError(
            "FV302",
            name="size",
            value=str(wanted),
            rule=f"is not that of the input, {given}: an action mode takes pixels as they are",
            legal=str(given),
            remedy="Leave the size out, or scale the input first.",
        )


def _causal_convolutions(module: nn.Module) -> int:
    return sum(isinstance(part, WanCausalConv3d) for part in module.modules())
