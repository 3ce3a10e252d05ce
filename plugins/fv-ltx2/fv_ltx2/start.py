"""How a stage begins: from noise, with an image in it, or from the latents of the stage before; and what is drawn.

Sources: diffusers 0.42.1, `prepare_latents` and `prepare_audio_latents` of `LTX2Pipeline` and
`LTX2ImageToVideoPipeline`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fv_core.loop.rng import torch_normal
from fv_ltx2.packing import pack, pack_audio


def noise(rng: Tensor, video: tuple[int, ...], audio: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens of both modalities, video drawn first, and the next state.

    Args:
        video: latent shape [C, F, H, W]. audio: latent shape [C, L, M].
    """
    video_noise, rng = torch_normal(rng, video)
    audio_noise, rng = torch_normal(rng, audio)
    return pack(video_noise), pack_audio(audio_noise), rng


def with_image(tokens: Tensor, image: Tensor) -> Tensor:
    """Tokens whose first latent frame is the image's, [C, 1, H, W]."""
    first = pack(image)
    return torch.cat([first, tokens[len(first) :]])


def renoised(tokens: Tensor, amount: float, rng: Tensor) -> tuple[Tensor, Tensor]:
    """`amount * noise + (1 - amount) * tokens` in fp32, noise drawn in their own shape and dtype; the next state."""
    drawn, rng = torch_normal(rng, tuple(tokens.shape), tokens.dtype)
    return (amount * drawn.to(tokens.device) + (1 - amount) * tokens).float(), rng


def renoised_after_first(latent: Tensor, amount: float, rng: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens of a latent [C, F, H, W] mixed with noise likewise, but for its first frame; the next state.

    Noise is drawn in the shape of the latent, not of its tokens.
    """
    drawn, rng = torch_normal(rng, tuple(latent.shape), latent.dtype)
    noisy = latent.new_ones((1, latent.shape[1], 1, 1))
    noisy[:, 0] = 0.0
    amounts = amount * noisy
    return pack(amounts * drawn.to(latent.device) + (1 - amounts) * latent).float(), rng
