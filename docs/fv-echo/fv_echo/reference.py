"""What parity is measured against: the model sampled by hand, without any of fv's loops.

A plugin for a published model runs its authors' pipeline here, over the modules that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fv_core.card import ModelCard
from fv_core.loop import Component
from fv_core.request import ResolvedRequest


def record(
    components: Mapping[str, Component],
    card: ModelCard,
    request: ResolvedRequest,
    inputs: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Every tensor that a run of fv's makes too, by the name of its tap, in order and without a batch axis.

    `inputs` are the request's by slot ("request.image"); this model takes none.
    """
    text, denoiser, decoder = (components[name].module for name in ("text", "denoiser", "vae"))
    taps: dict[str, Tensor] = {}
    texts = {"cond": _encode(text, "encode", request.prompt, taps)}
    if request.guidance > 1:
        texts["uncond"] = _encode(text, "encode_negative", request.negative_prompt, taps)
    shape = card.geometry(request.size, request.frames).latent
    noise = torch.randn((1, *shape), generator=torch.Generator().manual_seed(request.seed))
    _decode(decoder, _denoise(denoiser, noise, texts, card, request, taps), taps)
    return taps


def _encode(text: Any, node: str, prompt: str, taps: dict[str, Tensor]) -> Tensor:
    length = len(text.place.weight)
    data = prompt.encode()[:length]
    embeds: Tensor = text(torch.tensor([[*data, *[text.PAD] * (length - len(data))]]))
    taps[f"{node}/0/cond/embeds"] = taps[f"{node}/0/embeds"] = embeds[0]
    return embeds


def _denoise(
    denoiser: Any,
    latent: Tensor,
    texts: Mapping[str, Tensor],
    card: ModelCard,
    request: ResolvedRequest,
    taps: dict[str, Tensor],
) -> Tensor:
    shift = card.recipe.shift
    grid = torch.linspace(1, 0.001, request.steps + 1, dtype=torch.float64)
    sigmas = shift * grid / (1 + (shift - 1) * grid)
    sigmas[0], sigmas[-1] = 1 - 1e-6, 0
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        moment = (sigma * 1000).long()[None]
        velocity = {branch: denoiser(latent, moment, text) for branch, text in texts.items()}
        taps |= {f"denoise/{step}/{branch}/velocity": each[0] for branch, each in velocity.items()}
        guided = velocity["cond"]
        if request.guidance > 1:
            guided = velocity["uncond"] + request.guidance * (velocity["cond"] - velocity["uncond"])
        latent = latent + (following.float() - sigma.float()) * guided
        taps[f"denoise/{step}/latent"] = latent[0]
    return latent


def _decode(decoder: Any, latent: Tensor, taps: dict[str, Tensor]) -> None:
    latent = latent * 2.0
    taps["decode/0/cond/latent"] = latent[0]
    padded = torch.cat([torch.zeros_like(latent[:, :, :1]), latent], dim=2)
    chunks = []
    for index in range(latent.shape[2]):
        frames = decoder(padded[:, :, index : index + 2])[0].permute(0, 2, 3, 1)
        chunks.append(frames[-1:] if index == 0 else frames)
        taps[f"decode/{index + 1}/cond/frames"] = chunks[-1]
    taps["video"] = taps[f"decode/{len(chunks)}/video"] = torch.cat(chunks)
