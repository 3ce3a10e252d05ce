"""Scenes as latents of a codec: made once, where the method takes latents, and of the frames that pixels would be."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fv_core.training.contract import Content, DataContext, Latent, Pixels
from fv_core.training.data import shapes
from fv_wan21.card import CARDS

ASKED: list[Tensor] = []


def corner(clips: Tensor) -> Tensor:
    """A codec that keeps the first and last picture's corners."""
    ASKED.append(clips)
    return clips[:, :, ::8, ::32, ::32]


def content(kind: type[Content], codec: str = f"{__name__}:corner") -> tuple[Content, Content]:
    """Of one scene, in two epochs."""
    context = DataContext(card=CARDS[0], content=kind, seed=1, folder=Path())
    source = shapes.build(shapes.Config(clips=3, codec=codec), context)
    return source.sample(2, 0).content, source.sample(2, 5).content


def test_latents_are_the_codecs_and_are_made_once() -> None:
    ASKED.clear()
    (pixels, _), (latent, again) = content(Pixels), content(Latent)
    assert isinstance(pixels, Pixels) and isinstance(latent, Latent) and isinstance(again, Latent)
    clip = pixels.frames.permute(3, 0, 1, 2).unsqueeze(0).float() / 127.5 - 1
    assert latent.std is None and torch.equal(latent.mean, clip[0, :, ::8, ::32, ::32])
    assert again.mean.data_ptr() == latent.mean.data_ptr() and len(ASKED) == 1


def test_a_method_that_takes_pixels_gets_pixels() -> None:
    ASKED.clear()
    content(Pixels)
    assert not ASKED
