"""The three components: operations on lists of single samples over the diffusers and transformers modules.

References: diffusers 0.42.1 `WanPipeline`, `AutoencoderKLWan`; transformers 5.24.0 `UMT5EncoderModel`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d, patchify, unpatchify
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from torch import Tensor, nn
from transformers import UMT5EncoderModel

from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import form, stacked, tensor, unstacked
from fv_core.loop.rowwise import rowwise, sharing
from fv_wan21.text import clean


class TextEncoder:
    """Op `encode`: row text (str), output embeds [max_length, D] with rows past the prompt's end set to zero.

    All `max_length` rows are attended by the denoiser, zeros included: another length is another model. `draws` says
    what a model of few words can show: its prompts are told which of their words it does not know; "" says nothing.
    """

    def __init__(self, module: UMT5EncoderModel, tokenizer: Any, max_length: int, *, draws: str = "") -> None:
        self.module = rowwise(module)
        self.tokenizer = tokenizer
        self._max_length = max_length
        self._draws = draws

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return op

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        prompts = [clean(str(call.rows["text"])) for call in calls]
        tokens = self.tokenizer(
            prompts,
            padding="max_length",
            max_length=self._max_length,
            truncation=True,
            add_special_tokens=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        device = next(self.module.parameters()).device
        mask = tokens.attention_mask.to(device)
        with sharing(calls):
            embeds = self.module(tokens.input_ids.to(device), mask).last_hidden_state
        embeds = _without_padding(embeds, mask)
        return [
            ComponentOutput(
                output=CallOutput(tensors={"embeds": row}, notes=(*self._cut(prompt), *self._unknown(prompt)))
            )
            for row, prompt in zip(unstacked(embeds), prompts, strict=True)
        ]

    def _told(self, prompt: str) -> tuple[str, ...]:
        return (*self._cut(prompt), *self._unknown(prompt))

    def _cut(self, prompt: str) -> tuple[str, ...]:
        count = len(self.tokenizer(prompt, add_special_tokens=True).input_ids)
        if count <= self._max_length:
            return ()
        return (
            f"the prompt has {count} tokens and was cut to the {self._max_length} that the model was trained with",
        )

    def _unknown(self, prompt: str) -> tuple[str, ...]:
        if not self._draws:
            return ()
        text = self.tokenizer.backend_tokenizer
        parts = text.pre_tokenizer.pre_tokenize_str(prompt.lower())
        words = dict.fromkeys(word for word, _ in parts if text.token_to_id(word) is None)
        if not words:
            return ()
        return (f"the model does not know {', '.join(map(repr, words))}; it can draw {self._draws}",)


class Denoiser:
    """Op `velocity`: rows latent [C, F, H, W], timestep (int), text [L, D]; output velocity [C, F, H, W].

    The latent is cast to the transformer's dtype; the velocity stays in it.
    """

    def __init__(self, module: WanTransformer3DModel) -> None:
        self.module = rowwise(module)
        self._dtype = module.dtype  # walks every parameter, so read once

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return (op, form(call, "latent"), form(call, "text"))

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        latents = stacked(calls, "latent").to(self._dtype)
        timesteps = torch.tensor([int(call.rows["timestep"]) for call in calls], device=latents.device)
        text = stacked(calls, "text").to(self._dtype)
        with sharing(calls):
            (velocity,) = self.module(
                hidden_states=latents, timestep=timesteps, encoder_hidden_states=text, return_dict=False
            )
        return [ComponentOutput(output=CallOutput(tensors={"velocity": row})) for row in unstacked(velocity)]


class Vae:
    """Ops `posterior`, `prepare` and `decode`, one sample per forward: batching them changes bits.

    posterior: row frames uint8 [f, height, width, 3], f = 4k + 1; outputs mean and std fp32 [C, F, H, W], normalised.

    prepare: row latent [C, F, H, W], normalised; output latent of the same shape in the decoder's own space.
    decode: row latent [C, 1, H, W], static first (bool), one `stream` cache; output frames fp32
    [f, height, width, 3] in [0, 1], f = 1 for the first latent frame and the temporal factor after it.
    """

    def __init__(self, module: AutoencoderKLWan) -> None:
        self.module = module
        self._encoding = _causal_convolutions(module.encoder)
        self._features = _causal_convolutions(module.decoder)
        shape = (1, module.config.z_dim, 1, 1, 1)
        self._mean = torch.tensor(module.config.latents_mean).view(shape)
        self._std = torch.tensor(module.config.latents_std).view(shape)

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = {"posterior": self._posterior, "prepare": self._prepare, "decode": self._decode}[op]
        return [run(call) for call in calls]

    def _posterior(self, call: ResolvedCall) -> ComponentOutput:
        """As `AutoencoderKLWan.encode`, and normalised as `WanImageToVideoPipeline.prepare_latents` does."""
        frames = (
            tensor(call, "frames").to(next(self.module.parameters()).device).permute(3, 0, 1, 2).unsqueeze(0)
        )
        pixels = (frames.float() / 127.5 - 1.0).to(self.module.dtype)
        if self.module.config.patch_size is not None:
            pixels = patchify(pixels, patch_size=self.module.config.patch_size)
        features: list[Tensor | str | None] = [None] * self._encoding
        chunks = [
            self.module.encoder(pixels[:, :, begin:end], feat_cache=features, feat_idx=[0])
            for begin, end in _chunks(pixels.shape[2])
        ]
        posterior = DiagonalGaussianDistribution(self.module.quant_conv(torch.cat(chunks, dim=2)))
        inverse = 1.0 / self._std.to(posterior.mean)
        mean = (posterior.mean - self._mean.to(posterior.mean)) * inverse
        moments = {"mean": mean[0].float(), "std": (posterior.std * inverse)[0].float()}
        return ComponentOutput(output=CallOutput(tensors=moments))

    def _prepare(self, call: ResolvedCall) -> ComponentOutput:
        latent = tensor(call, "latent").unsqueeze(0).to(self.module.dtype)
        latent = _denormalised(latent, self._mean.to(latent), self._std.to(latent))
        prepared: Tensor = self.module.post_quant_conv(latent)
        return ComponentOutput(output=CallOutput(tensors={"latent": prepared[0]}))

    def _decode(self, call: ResolvedCall) -> ComponentOutput:
        (content,) = call.caches
        features = content or [None] * self._features
        latent = tensor(call, "latent").unsqueeze(0)
        video = self.module.decoder(
            latent, feat_cache=features, feat_idx=[0], first_chunk=bool(call.static["first"])
        )
        if self.module.config.patch_size is not None:
            video = unpatchify(video, patch_size=self.module.config.patch_size)
        video = (torch.clamp(video, min=-1.0, max=1.0) * 0.5 + 0.5).clamp(0, 1)
        frames = video[0].permute(1, 2, 3, 0).float()
        return ComponentOutput(output=CallOutput(tensors={"frames": frames}), caches=(features,))


def _causal_convolutions(module: nn.Module) -> int:
    return sum(isinstance(part, WanCausalConv3d) for part in module.modules())


def _chunks(frames: int) -> Iterator[tuple[int, int]]:
    """The first frame by itself, then four at a time: what one latent frame is made of."""
    yield 0, 1
    for begin in range(1, frames, 4):
        yield begin, begin + 4


def _without_padding(embeds: Tensor, mask: Tensor) -> Tensor:
    return embeds.masked_fill(mask.unsqueeze(-1) == 0, 0.0)


def _denormalised(latent: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return latent / (1.0 / std) + mean  # in this form: latent * std + mean rounds differently
