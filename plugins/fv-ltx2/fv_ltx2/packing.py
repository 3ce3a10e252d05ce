"""Latents as tokens and back. One token is one latent cell (patch size 1), or one audio latent frame with all its mel.

Source: diffusers 0.42.1, `LTX2Pipeline._pack_latents`, `_unpack_latents`, `_pack_audio_latents`.
"""

from __future__ import annotations

from torch import Tensor

Grid = tuple[int, int, int]
"""Latent frames, rows and columns."""


def pack(latent: Tensor) -> Tensor:
    """[C, F, H, W] to [F * H * W, C], tokens in the order frame, row, column."""
    return latent.permute(1, 2, 3, 0).flatten(0, 2).contiguous()


def unpack(tokens: Tensor, grid: Grid) -> Tensor:
    """[F * H * W, C] to [C, F, H, W]."""
    latent: Tensor = tokens.unflatten(0, grid)
    return latent.permute(3, 0, 1, 2).contiguous()


def pack_audio(latent: Tensor) -> Tensor:
    """[C, L, M] to [L, C * M]."""
    return latent.transpose(0, 1).flatten(1, 2).contiguous()


def unpack_audio(tokens: Tensor, channels: int) -> Tensor:
    """[L, C * M] to [C, L, M], a view: the memory order is the reference's, by which bf16 convolutions round."""
    latent: Tensor = tokens.unflatten(1, (channels, -1))
    return latent.transpose(0, 1)
