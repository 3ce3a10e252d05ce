"""The causal video autoencoder as a component; its features are lists handed in and out, never module attributes.

References: diffusers 0.42.1 `AutoencoderKLWan`; Self-Forcing at 33593df3, `WanVAEWrapper`, for the two scalings.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from diffusers import AutoencoderKLWan
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d, patchify, unpatchify
from torch import Tensor, nn

from fv_core.cache import CacheContent
from fv_core.errors import RequestError
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import tensor

_GROUP = 4
"""Frames per latent frame, after the first, which has one of its own."""


class Vae:
    """Ops `encode`, `prepare` and `decode`, one sample per forward: batching it changes bits.

    encode: rows pixels, uint8 [H, W, 3] or [F, H, W, 3], width and height of the request; output latent
    [C, (F - 1) / 4 + 1, H / 8, W / 8], normalised.
    prepare: row latent [C, F, H, W], normalised; output latent of the same shape in the decoder's own space.
    decode: row latent [C, 1, H, W], static first (bool), one `stream` cache; output frames fp32
    [f, height, width, 3] in [0, 1], f = 1 for the first latent frame and 4 after it.
    """

    def __init__(self, module: AutoencoderKLWan) -> None:
        self.module = module
        shape = (1, module.config.z_dim, 1, 1, 1)
        self._mean = torch.tensor(module.config.latents_mean).view(shape)
        self._std = torch.tensor(module.config.latents_std).view(shape)

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = {"encode": self._encode, "prepare": self._prepare, "decode": self._decode}[op]
        return [run(call) for call in calls]

    def _encode(self, call: ResolvedCall) -> ComponentOutput:
        pixels = tensor(call, "pixels")
        frames = pixels if pixels.ndim == 4 else pixels.unsqueeze(0)
        _check(frames, int(call.rows["width"]), int(call.rows["height"]))
        clip = (frames.permute(3, 0, 1, 2).unsqueeze(0).to(self.module.dtype) / 255 - 0.5) / 0.5
        if self.module.config.patch_size is not None:
            clip = patchify(clip, patch_size=self.module.config.patch_size)
        features: CacheContent = [None] * _convolutions(self.module.encoder)
        parts = [
            self.module.encoder(group, feat_cache=features, feat_idx=[0])
            for group in (clip[:, :, :1], *clip[:, :, 1:].split(_GROUP, dim=2))
            if group.shape[2]
        ]
        mean, _ = self.module.quant_conv(torch.cat(parts, dim=2)).chunk(2, dim=1)
        latent = (mean - self._mean.to(mean)) * (1.0 / self._std.to(mean))
        return ComponentOutput(output=CallOutput(tensors={"latent": latent[0].float()}))

    def _prepare(self, call: ResolvedCall) -> ComponentOutput:
        latent = tensor(call, "latent").unsqueeze(0).to(self.module.dtype)
        latent = latent / (1.0 / self._std.to(latent)) + self._mean.to(
            latent
        )  # times std would round otherwise
        prepared: Tensor = self.module.post_quant_conv(latent)
        return ComponentOutput(output=CallOutput(tensors={"latent": prepared[0]}))

    def _decode(self, call: ResolvedCall) -> ComponentOutput:
        (content,) = call.caches
        features = content or [None] * _convolutions(self.module.decoder)
        latent = tensor(call, "latent").unsqueeze(0)
        video = self.module.decoder(
            latent, feat_cache=features, feat_idx=[0], first_chunk=bool(call.static["first"])
        )
        if self.module.config.patch_size is not None:
            video = unpatchify(video, patch_size=self.module.config.patch_size)
        video = (torch.clamp(video, min=-1.0, max=1.0) * 0.5 + 0.5).clamp(0, 1)
        frames = video[0].permute(1, 2, 3, 0).float()
        return ComponentOutput(output=CallOutput(tensors={"frames": frames}), caches=(features,))


def _check(frames: Tensor, width: int, height: int) -> None:
    """Raises:
    RequestError: FV302 the input has another size than the clip, FV303 its last group of frames is not whole.
    """
    count, rows, columns, _ = frames.shape
    if (columns, rows) != (width, height):
        raise RequestError(
            "FV302",
            name="size of the input",
            value=f"{columns}x{rows}",
            rule=f"is not that of the clip, {width}x{height}",
            legal=f"{width}x{height}",
            remedy="Leave the size out, or resize the input: fv does not do it for you.",
        )
    if (count - 1) % _GROUP:
        raise RequestError(
            "FV303",
            name="frames of the input",
            value=count,
            rule="end within a group that has one latent frame",
            legal=f"{_GROUP}k+1",
            remedy=f"Cut it to {count - (count - 1) % _GROUP} frames.",
        )


def _convolutions(part: nn.Module) -> int:
    """How many entries its list of features has."""
    return sum(isinstance(each, WanCausalConv3d) for each in part.modules())
