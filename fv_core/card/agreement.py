"""Rules between values: limits lie on the latent grid, and every default within its limit."""

from __future__ import annotations

from collections.abc import Iterator

from fv_core.card.bounds import breaks
from fv_core.card.card import ModelCard
from fv_core.errors import CardError


def grid(card: ModelCard) -> Iterator[CardError]:
    """FV207: every size and frame count that the limits allow lies on the latent grid, or it would be cut to it."""
    size, frames, latent = card.limits.size, card.limits.frames, card.latent
    if size.multiple % latent.spatial:
        yield breaks("limits.size.multiple", size.multiple, f"multiples of latent.spatial, {latent.spatial}")
    if frames.multiple % latent.temporal:
        legal = f"multiples of latent.temporal, {latent.temporal}"
        yield breaks("limits.frames.multiple", frames.multiple, legal)


def default_size(card: ModelCard) -> Iterator[CardError]:
    """FV207 for a default size that no request could ask for."""
    if not card.limits.size.allows(card.defaults.size):
        yield breaks("defaults.size", str(card.defaults.size), card.limits.size.legal())


def default_frames(card: ModelCard) -> Iterator[CardError]:
    """FV207 for a default number of frames that no request could ask for."""
    if not card.limits.frames.allows(card.defaults.frames):
        yield breaks("defaults.frames", card.defaults.frames, card.limits.frames.legal())


def param_defaults(card: ModelCard) -> Iterator[CardError]:
    """FV207 for a default of a parameter, the card's or a task's, that no request could give."""
    for name, rule in card.params.items():
        if not rule.allows(card.param_default(name)):
            yield breaks(f"params.{name}", card.param_default(name), rule.legal())
        for task, program in card.programs.items():
            if name in program.defaults and not rule.allows(program.defaults[name]):
                yield breaks(f"programs.{task}.defaults.{name}", program.defaults[name], rule.legal())
