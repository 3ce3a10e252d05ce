"""How a stage begins: from noise, from an image, or from the latents of the stage before; what is drawn, in order.

Sources: diffusers 0.42.1, `prepare_latents` and `prepare_audio_latents` of `LTX2Pipeline` and
`LTX2ImageToVideoPipeline`.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

from fv_ltx2.packing import Grid, pack, pack_audio


class Start(StrEnum):
    """What the first latents of a stage are made of.

    noise: drawn. image: drawn, the first latent frame the image's. latent: the latents of the stage before, mixed
    with noise. image-latent: likewise, its first latent frame left as it is.
    """

    NOISE = "noise"
    IMAGE = "image"
    LATENT = "latent"
    IMAGE_LATENT = "image-latent"

    @property
    def keeps_first_frame(self) -> bool:
        """Whether the first latent frame is clean and stays as it is."""
        return self in (Start.IMAGE, Start.IMAGE_LATENT)

    @property
    def role(self) -> str | None:
        """The role of the component that the loop asks before it begins."""
        return {Start.NOISE: None, Start.IMAGE: "vae"}.get(self, "statistics")


def draw(rng: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Standard normal numbers on the CPU, drawn in `dtype`, and the next state of the stream `rng`."""
    generator = torch.Generator("cpu")
    generator.set_state(rng)
    return torch.randn(shape, generator=generator, dtype=dtype), generator.get_state()


def noise(rng: Tensor, video: tuple[int, ...], audio: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens of both modalities, video drawn first, and the next state.

    Args:
        video: latent shape [C, F, H, W]. audio: latent shape [C, L, M].
    """
    video_noise, rng = draw(rng, video)
    audio_noise, rng = draw(rng, audio)
    return pack(video_noise), pack_audio(audio_noise), rng


def with_image(tokens: Tensor, image: Tensor) -> Tensor:
    """Tokens whose first latent frame is the image's, [C, 1, H, W]."""
    first = pack(image)
    return torch.cat([first, tokens[len(first) :]])


def renoised(latent: Tensor, amount: float, rng: Tensor) -> tuple[Tensor, Tensor]:
    """`amount * noise + (1 - amount) * latent`, noise drawn in the latent's own shape and dtype; the next state."""
    drawn, rng = draw(rng, tuple(latent.shape), latent.dtype)
    return amount * drawn.to(latent.device) + (1 - amount) * latent, rng


def renoised_video(latent: Tensor, amount: float, rng: Tensor, *, keep_first: bool) -> tuple[Tensor, Tensor]:
    """Tokens of a latent [C, F, H, W] mixed with noise, fp32, and the next state.

    With `keep_first` the first latent frame gets none, and the noise is drawn before packing, not after.
    """
    if not keep_first:
        tokens, rng = renoised(pack(latent), amount, rng)
        return tokens.float(), rng
    drawn, rng = draw(rng, tuple(latent.shape), latent.dtype)
    amounts = latent.new_full((1, latent.shape[1], 1, 1), 1.0)
    amounts[:, 0] = 0.0
    amounts = amount * amounts
    return pack(amounts * drawn.to(latent.device) + (1 - amounts) * latent).float(), rng


def grid_of(shape: tuple[int, int, int, int]) -> Grid:
    """The token grid of a latent shape [C, F, H, W]."""
    return shape[1], shape[2], shape[3]
