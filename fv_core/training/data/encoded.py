"""A source of pixels as one of latents and embeddings, which are found in a store or computed.

What is stored is the posterior, never a draw from it: a stored draw would be the same noise in every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from fv_core.cache import CacheKey, ValueRef
from fv_core.cache.stores import value_ref
from fv_core.errors import RunError
from fv_core.loop import CallOutput
from fv_core.request import Size
from fv_core.training.contract import Bucket, Latent, Pixels, Sample, Source
from fv_core.training.data.encoder import EMBEDS, Encoder
from fv_core.training.data.store import FeatureStore, unusable


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A sample before its pixels are read.

    Args:
        origin: all that decides its pixels: what they come from, and what is done to it; its geometry too.
    """

    id: str
    caption: str
    origin: Mapping[str, str | int | float | ValueRef]


@runtime_checkable
class Outlined(Source, Protocol):
    """A source that can tell which pixels a sample has without making them. Any other is keyed by the pixels."""

    def outline(self, index: int, epoch: int) -> Outline: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What filling a store did.

    Args:
        latents, embeds: how many were computed.
        found: how many were there.
        notes: what an encoder did not take as given, by sample.
    """

    latents: int
    embeds: int
    found: int
    notes: tuple[str, ...]


class Encoded:
    """The samples of `source` with latents for pixels.

    Args:
        source: its samples hold pixels.
        store: where results are kept and looked for; None computes them whenever they are asked for.
        with_embeds: whether samples have the embeddings of their captions: not where the text encoder is trained.
    """

    def __init__(
        self, source: Source, encoder: Encoder, store: FeatureStore | None, *, with_embeds: bool = True
    ) -> None:
        self._source = source
        self._encoder = encoder
        self._store = store
        self._with_embeds = with_embeds

    def __len__(self) -> int:
        return len(self._source)

    def bucket(self, index: int) -> Bucket:
        return self._source.bucket(index)

    def sample(self, index: int, epoch: int) -> Sample:
        """Raises:
        TrainError: FV724, what is stored is damaged, or of another geometry than the sample's bucket.
        RunError: FV501, what an encoder gave is not finite.
        """
        outline = self._outline(index, epoch)
        embeds = self._embeds(outline.caption).tensors[EMBEDS] if self._with_embeds else None
        latent = self._latent(outline, index, epoch)
        return Sample(id=outline.id, caption=outline.caption, content=latent, embeds=embeds)

    def fill(
        self, *, rank: int = 0, ranks: int = 1, told: Callable[[int, int], None] = lambda done, total: None
    ) -> Filled:
        """Computes what the first epoch needs and the store has not: all latents, then all embeddings.

        So one encoder is resident at a time, and none afterwards, unless it was before.

        Args:
            rank, ranks: which part of the samples is this process's.
            told: is called after each result with how many are done of how many.
        """
        assert self._store is not None, "without a store there is nothing to fill"
        mine = range(rank, len(self), ranks)
        outlines = [self._outline(index, 0) for index in mine]
        captions = list(dict.fromkeys(one.caption for one in outlines)) if self._with_embeds else []
        total, done, latents, embeds, notes = len(mine) + len(captions), 0, 0, 0, []
        with self._encoder.alone():
            for index, outline in zip(mine, outlines, strict=True):
                latents += self._encoder.posterior_key(outline.origin) not in self._store
                self._latent(outline, index, 0)
                told(done := done + 1, total)
        with self._encoder.alone():
            for caption in captions:
                embeds += self._encoder.embeds_key(caption) not in self._store
                notes += [f"caption {caption!r}: {note}" for note in self._embeds(caption).notes]
                told(done := done + 1, total)
        return Filled(latents=latents, embeds=embeds, found=total - latents - embeds, notes=tuple(notes))

    def _outline(self, index: int, epoch: int) -> Outline:
        if isinstance(self._source, Outlined):
            return self._source.outline(index, epoch)
        sample = self._source.sample(index, epoch)
        origin = {"frames": value_ref(cast(Pixels, sample.content).frames)}
        return Outline(id=sample.id, caption=sample.caption, origin=origin)

    def _latent(self, outline: Outline, index: int, epoch: int) -> Latent:
        bucket = self.bucket(index)
        shape = self._encoder.card.geometry(Size(bucket.width, bucket.height), bucket.frames).latent
        key = self._encoder.posterior_key(outline.origin)
        found = self._kept(key, lambda: self._posterior(index, epoch, outline.id, shape))
        if (other := _misshapen(found, shape)) is not None:
            assert self._store is not None, "what is computed is checked before"
            raise unusable(self._store.path(key), f"holds a latent {list(other)} and not {list(shape)}")
        return Latent(mean=found.tensors["mean"], std=found.tensors.get("std"))

    def _posterior(self, index: int, epoch: int, name: str, shape: tuple[int, ...]) -> CallOutput:
        frames = cast(Pixels, self._source.sample(index, epoch).content).frames
        found = self._encoder.posterior(frames, name)
        if (other := _misshapen(found, shape)) is not None:
            raise RunError(
                "FV502",
                name=f"posterior of {name}",
                value=list(other),
                rule="has not the shape that the card tells of its latents",
                legal=str(list(shape)),
                remedy="Correct the autoencoder's operation, or `latent` of the card.",
            )
        return found

    def _embeds(self, caption: str) -> CallOutput:
        return self._kept(self._encoder.embeds_key(caption), lambda: self._encoder.embeds(caption))

    def _kept(self, key: CacheKey, compute: Callable[[], CallOutput]) -> CallOutput:
        if self._store is None:
            return compute()
        found = self._store.read(key)
        if found is None:
            found = compute()
            self._store.write(key, found)
        return found


def _misshapen(found: CallOutput, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The first shape that is not the one that a latent has; None: all are."""
    return next((tuple(one.shape) for one in found.tensors.values() if tuple(one.shape) != shape), None)
