"""Pixels of the inputs as the encoder takes them: fp32 [3, F, height, width] in [-1, 1].

Reference: diffusers 0.42.1, `Cosmos3OmniPipeline.prepare_latents`. Each way of fitting is the reference's own for its
modes, down to the resampling; what it changes is told.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from diffusers.video_processor import VideoProcessor
from PIL import Image
from torch import Tensor

from fv_core.request import Size
from fv_cosmos3.embodiments import canvas


def covering(image: Tensor, size: Size) -> tuple[Tensor, tuple[str, ...]]:
    """An image uint8 [H, W, 3], scaled to cover the size and cut around its centre."""
    height, width, _ = image.shape
    scale = max(size.width / width, size.height / height)
    scaled = (math.ceil(scale * height), math.ceil(scale * width))
    pixels = F.interpolate(
        image.permute(2, 0, 1)[None].float(),
        size=scaled,
        mode="bilinear",
        align_corners=False,
        antialias=True,
    )
    top, left = round((scaled[0] - size.height) / 2), round((scaled[1] - size.width) / 2)
    pixels = pixels[:, :, top : top + size.height, left : left + size.width]
    given = Size(width, height)
    notes = (f"the image of {given} was scaled to cover {size} and cut around its centre",)
    return (pixels.round().clamp(0, 255) / 127.5 - 1.0)[0].unsqueeze(1), notes if given != size else ()


def stretched(video: Tensor, size: Size, count: int, keep: str) -> tuple[Tensor, tuple[str, ...]]:
    """The first or last `count` frames of a video uint8 [F, H, W, 3], each scaled to the size."""
    frames, height, width, _ = video.shape
    kept = video[:count] if keep == "first" else video[-count:]
    given = Size(width, height)
    notes: tuple[str, ...] = () if given == size else (f"the video of {given} was scaled to {size}",)
    if frames > count:
        notes += (f"the clip goes on from the {keep} {count} of the {frames} frames of the video",)
    pixels = _processed(kept, size)
    if frames < count:
        notes += (f"the video has {frames} frames: its last one was repeated to {count}",)
    return _repeated(pixels, count), notes


def padded(view: Tensor, size: Size, count: int, tier: str) -> tuple[Tensor, tuple[str, ...]]:
    """The first `count` frames of a view uint8 [F, H, W, 3] of exactly this size, laid into the tier's canvas."""
    frames = len(view)
    notes: tuple[str, ...] = ()
    if frames < count:
        notes = (f"the video has {frames} frames: its last one was repeated to {count}",)
    elif frames > count:
        notes = (f"the first {count} of the {frames} frames of the video are used",)
    pixels = _repeated(_processed(view[:count], size), count).transpose(0, 1)
    target = canvas(tier, size)
    right, bottom = target.width - size.width, target.height - size.height
    if right or bottom:
        small = right >= size.width or bottom >= size.height
        pixels = F.pad(pixels, (0, right, 0, bottom), mode="replicate" if small else "reflect")
    return pixels.transpose(0, 1), notes


def _processed(frames: Tensor, size: Size) -> Tensor:
    images = [Image.fromarray(frame.cpu().numpy()) for frame in frames]
    processor = VideoProcessor(vae_scale_factor=1, resample="bilinear")
    return cast(Tensor, processor.preprocess_video(images, height=size.height, width=size.width)[0])


def _repeated(pixels: Tensor, count: int) -> Tensor:
    missing = count - pixels.shape[1]
    return pixels if missing <= 0 else torch.cat([pixels, pixels[:, -1:].expand(-1, missing, -1, -1)], dim=1)
