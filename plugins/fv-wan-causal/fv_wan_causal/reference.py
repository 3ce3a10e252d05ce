"""The reference of the cards' claims: one plain rollout as the official pipeline has it, its tensors by fv's names.

The official code is no package, so it is transcribed, and tests hold the transcription to tensors that it made. The
whole latent is decoded at once, by the autoencoder's own decode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fv_core.card import ModelCard
from fv_core.loop import Component
from fv_core.request import ResolvedRequest, TaskType
from fv_wan_causal.text import clean
from fv_wan_causal.transcription import Pipeline


def record(
    components: Mapping[str, Component],
    card: ModelCard,
    request: ResolvedRequest,
    inputs: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Runs the reference on one request and returns its taps.

    Embeddings [L, D], velocities and latents [C, F, H, W], frames and the video [F, H, W, 3] in [0, 1].
    """
    taps: dict[str, Tensor] = {}
    text = _embeddings(components["text"], request.prompt)
    taps["encode/0/cond/embeds"] = taps["encode/0/embeds"] = text[0]
    vae: Any = components["vae"].module
    given = None
    if inputs:
        (pixels,) = inputs.values()
        given = _encoded(vae, pixels if pixels.ndim == 4 else pixels.unsqueeze(0))
        taps["encode_prefix/0/cond/latent"] = taps["encode_prefix/0/latent"] = given[0].transpose(0, 1)
    settings = card.loops["rollout_frame" if request.task is TaskType.I2V else "rollout"].params
    pipeline = Pipeline(components["transformer"].module, settings, card.recipe.sigmas)
    generator = torch.Generator("cpu").manual_seed(request.seed)
    channels, frames, height, width = card.geometry(request.size, request.frames).latent
    made = frames - (0 if given is None else given.shape[1])

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(text.device)

    noise = draw(1, made, channels, height, width)
    steps = pipeline.rollout(noise, text, given, lambda x0: draw(*x0.shape))
    for step, (flow, latent) in enumerate(steps):
        if flow is not None:
            taps[f"rollout/{step}/cond/velocity"] = flow[0].transpose(0, 1)
        taps[f"rollout/{step}/latent"] = latent[0].transpose(0, 1)
    taps |= _decoded(vae, latent, pipeline.sizes)
    return {name: tensor.clone() for name, tensor in taps.items()}


def _embeddings(component: Any, prompt: str) -> Tensor:
    """[1, 512, D]; rows past the end of the prompt are zero."""
    device = next(component.module.parameters()).device
    tokens = component.tokenizer(
        [clean(prompt)], padding="max_length", max_length=512, truncation=True, return_tensors="pt"
    ).to(device)
    embeds: Tensor = component.module(tokens.input_ids, tokens.attention_mask).last_hidden_state
    embeds[0, int(tokens.attention_mask.sum()) :] = 0.0
    return embeds


def _scale(vae: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    mean, std = (
        torch.tensor(getattr(vae.config, f"latents_{name}"), device=device) for name in ("mean", "std")
    )
    return mean.view(1, -1, 1, 1, 1), 1.0 / std.view(1, -1, 1, 1, 1)


def _encoded(vae: Any, frames: Tensor) -> Tensor:
    """[1, F, C, H, W] of uint8 frames, by the autoencoder's own encode."""
    clip = frames.to(vae.device).permute(3, 0, 1, 2).unsqueeze(0).float().div(255).sub(0.5).div(0.5)
    mean, scale = _scale(vae, vae.device)
    latent: Tensor = (vae.encode(clip).latent_dist.mode() - mean) * scale
    return latent.transpose(1, 2)


def _decoded(vae: Any, latent: Tensor, sizes: Sequence[int]) -> dict[str, Tensor]:
    """The whole latent decoded at once, by the autoencoder's own decode; its parts where fv has steps of its own."""
    mean, scale = _scale(vae, vae.device)
    parts: list[Tensor] = []
    prepared: list[Tensor] = []
    hooks = (
        vae.decoder.register_forward_hook(lambda module, args, out: parts.append(out)),
        vae.post_quant_conv.register_forward_hook(lambda module, args, out: prepared.append(out)),
    )
    try:
        video = vae.decode(latent.transpose(1, 2).float() / scale + mean).sample
    finally:
        for hook in hooks:
            hook.remove()
    taps, step, frame = {}, 0, 0
    for size in sizes:
        taps[f"decode/{step}/cond/latent"] = prepared[0][0, :, frame : frame + size]
        for part in parts[frame : frame + size]:
            step += 1
            taps[f"decode/{step}/cond/frames"] = _shown(part.clamp(-1, 1))
        step, frame = step + 1, frame + size
    taps[f"decode/{step - 1}/video"] = taps["video"] = _shown(video)
    return taps


def _shown(video: Tensor) -> Tensor:
    return (video[0].permute(1, 2, 3, 0) * 0.5 + 0.5).clamp(0, 1).float().cpu()
