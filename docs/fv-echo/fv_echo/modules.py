"""The model itself, plain torch that knows nothing of fv: a text encoder, a denoiser and a causal decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Text(nn.Module):
    """Bytes [B, length], padded with `PAD`, to embeddings [B, length, width]."""

    PAD = 256

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.byte = nn.Embedding(self.PAD + 1, width)
        self.place = nn.Embedding(length, width)

    def forward(self, text: Tensor) -> Tensor:
        embeds: Tensor = self.byte(text) + self.place.weight
        return embeds


class Block(nn.Module):
    """A convolution within the clip [B, width, F, H, W] and attention to the text [B, L, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.near = nn.Conv3d(width, width, 3, padding=1)
        self.query = nn.Linear(width, width)
        self.pair = nn.Linear(width, 2 * width)

    def forward(self, clip: Tensor, text: Tensor) -> Tensor:
        clip = clip + self.near(functional.silu(clip))
        cells = clip.flatten(2).transpose(1, 2)  # [B, F * H * W, width]
        key, value = self.pair(text).chunk(2, dim=-1)
        heard = functional.scaled_dot_product_attention(self.query(cells), key, value)
        told: Tensor = heard.transpose(1, 2).unflatten(2, clip.shape[2:])
        return clip + told


class Denoiser(nn.Module):
    """Noisy latent [B, channels, F, H, W], timestep [B] in 0..1000, text [B, L, width] to the velocity."""

    def __init__(self, channels: int, width: int, blocks: int) -> None:
        super().__init__()
        self.enter = nn.Conv3d(channels, width, 3, padding=1)
        self.time = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.leave = nn.Conv3d(width, channels, 3, padding=1)

    def forward(self, latent: Tensor, timestep: Tensor, text: Tensor) -> Tensor:
        waves = torch.arange(1, self.time.in_features + 1, device=latent.device)
        moment = self.time(torch.sin(timestep[:, None] / 1000 * waves).to(latent))
        clip = self.enter(latent) + moment[:, :, None, None, None]
        for block in self.blocks:
            clip = block(clip, text)
        velocity: Tensor = self.leave(clip)
        return velocity


class Decoder(nn.Module):
    """Latent frames [B, channels, 2, H, W], the one before and this one, to 4 frames [B, 4, 3, 8 H, 8 W]."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv3d(channels, width, (2, 3, 3), padding=(0, 1, 1))
        self.leave = nn.Conv2d(width, 4 * 3 * 8 * 8, 1)

    def forward(self, latents: Tensor) -> Tensor:
        cells = functional.silu(self.enter(latents)).squeeze(2)
        frames = functional.pixel_shuffle(self.leave(cells), 8)
        shown: Tensor = torch.sigmoid(frames).unflatten(1, (4, 3))
        return shown
