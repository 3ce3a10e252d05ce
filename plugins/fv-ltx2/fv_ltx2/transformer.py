"""The joint transformer: velocities of video and audio tokens that attend to each other.

Reference: diffusers 0.42.1, `LTX2VideoTransformer3DModel` as `LTX2Pipeline` and `LTX2ImageToVideoPipeline` call it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from diffusers import LTX2VideoTransformer3DModel
from torch import Tensor

from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import form, number, stacked, tensor, unstacked, whole
from fv_core.loop.rowwise import rowwise, sharing
from fv_core.request import Numerics

_TEXT = ("text_video", "text_audio", "text_mask")


class Transformer:
    """Op `velocity`: outputs velocity [S, C] and audio_velocity [L, D], in the transformer's dtype.

    Rows: latent [S, C] and audio_latent [L, D], tokens (cast to the transformer's dtype); timestep (1000 sigma);
    text_video [N, T, Dv], text_audio [N, T, Da] and text_mask [N, T], the prompts; prompt, which of them; frames,
    height, width of the latent grid, S = frames * height * width; clean, how many leading tokens are clean and seen
    at timestep 0; fps. Static: skip, index of the block whose self-attention is skipped, -1 for none; isolated,
    whether video and audio do not see each other; by_channel, whether the reference holds the tokens of a single
    sample channel by channel.
    """

    def __init__(self, module: LTX2VideoTransformer3DModel) -> None:
        self.module = rowwise(module)
        self._dtype = module.dtype  # walks every parameter, so read once

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        forms = (form(call, name) for name in ("latent", "audio_latent"))
        texts = ((tensor(call, name).shape[1:], tensor(call, name).dtype) for name in _TEXT)
        numbers = (number(call, name) for name in ("frames", "height", "width", "clean", "fps"))
        return (op, *forms, *texts, *numbers, *sorted(call.static.items()))

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        first = calls[0]
        latents = stacked(calls, "latent").to(self._dtype)
        if first.static["by_channel"] and (len(calls) == 1 or first.numerics is Numerics.EXACT):
            latents = _by_channel(latents)
        audio_latents = stacked(calls, "audio_latent").to(self._dtype)
        device = latents.device
        timesteps = torch.tensor([number(call, "timestep") for call in calls], device=device)
        text, audio_text, mask = (torch.stack([_of_prompt(call, name) for call in calls]) for name in _TEXT)
        grid = tuple(whole(first, name) for name in ("frames", "height", "width"))
        count, audio_frames = len(calls), audio_latents.shape[1]
        skip = int(first.static["skip"])
        with sharing(calls):
            velocity, audio_velocity = self.module(
                hidden_states=latents,
                audio_hidden_states=audio_latents,
                encoder_hidden_states=text,
                audio_encoder_hidden_states=audio_text,
                timestep=_per_token(timesteps, latents.shape[1], whole(first, "clean")),
                audio_timestep=timesteps,
                sigma=timesteps,
                encoder_attention_mask=mask,
                audio_encoder_attention_mask=mask,
                video_coords=self.module.rope.prepare_video_coords(
                    count, *grid, device, fps=number(first, "fps")
                ),
                audio_coords=self.module.audio_rope.prepare_audio_coords(count, audio_frames, device),
                isolate_modalities=bool(first.static["isolated"]),
                spatio_temporal_guidance_blocks=None if skip < 0 else [skip],
                use_cross_timestep=True,
                return_dict=False,
            )
        return [
            ComponentOutput(output=CallOutput(tensors={"velocity": video, "audio_velocity": audio}))
            for video, audio in zip(unstacked(velocity), unstacked(audio_velocity), strict=True)
        ]


def _by_channel(tokens: Tensor) -> Tensor:
    """The same numbers with the tokens of a channel side by side in memory, by which a product of few rounds."""
    return tokens.transpose(1, 2).contiguous().transpose(1, 2)


def _per_token(timesteps: Tensor, tokens: int, clean: int) -> Tensor:
    """[B] where every token is at the same noise level, else [B, tokens] with 0 for the clean ones."""
    if not clean:
        return timesteps
    noisy = torch.ones(tokens, device=timesteps.device)
    noisy[:clean] = 0.0
    return timesteps.unsqueeze(-1) * noisy


def _of_prompt(call: ResolvedCall, name: str) -> Tensor:
    prompts, index = tensor(call, name), whole(call, "prompt")
    if not 0 <= index < len(prompts):
        raise ValueError(f"{name} holds {len(prompts)} prompts, the call asks for number {index}")
    return prompts[index]
