"""A source of pixels as one of latents and embeddings, which are found in a store or computed.

What is stored is the posterior, never a draw from it: a stored draw would be the same noise in every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, cast, runtime_checkable

from torch import Tensor

from fv_core.cache import CacheKey, ValueRef
from fv_core.cache.stores import value_ref
from fv_core.errors import RunError
from fv_core.loop import CallOutput
from fv_core.request import Size
from fv_core.training.contract import Bucket, Latent, Pixels, Sample, Source
from fv_core.training.data.encoder import EMBEDS, Encoder
from fv_core.training.data.store import FeatureStore, unusable

Origin: TypeAlias = Mapping[str, str | int | float | ValueRef]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A sample before its pixels are read.

    Args:
        origin: all that decides its pixels: what they come from, and what is done to it; its geometry too.
    """

    id: str
    caption: str
    origin: Origin


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
    """The samples of `source` with latents for pixels; a sample that its source made of latents stays as it is.

    Args:
        source: what is encoded.
        store: where results are kept and looked for; None computes them whenever they are asked for.
        with_embeds: whether samples have the embeddings of their captions.
        captions: others that are asked for too.
    """

    def __init__(
        self,
        source: Source,
        encoder: Encoder,
        store: FeatureStore | None,
        *,
        with_embeds: bool = True,
        captions: Sequence[str] = (),
    ) -> None:
        self.store = store
        self._source = source
        self._encoder = encoder
        self._with_embeds = with_embeds
        self._captions = captions

    def __len__(self) -> int:
        return len(self._source)

    def bucket(self, index: int) -> Bucket:
        return self._source.bucket(index)

    def sample(self, index: int, epoch: int) -> Sample:
        """Raises:
        TrainError: FV724, what is stored is damaged, or of another geometry than the sample's bucket.
        RunError: FV501, what an encoder gave is not finite.
        """
        if isinstance(self._source, Outlined):
            outline = self._source.outline(index, epoch)
            latent = self._latent(
                index, outline.id, outline.origin, lambda: self._source.sample(index, epoch)
            )
            sample = Sample(id=outline.id, caption=outline.caption, content=latent)
        else:
            made = self._source.sample(index, epoch)
            if not isinstance(made.content, Pixels):
                return made
            origin = {"frames": value_ref(made.content.frames)}
            sample = replace(made, content=self._latent(index, made.id, origin, lambda: made))
        return replace(sample, embeds=self.embeds(sample.caption))

    def embeds(self, caption: str) -> Tensor | None:
        """The embeddings of a caption; None: samples do not have theirs."""
        return self._embeds(caption).tensors[EMBEDS] if self._with_embeds else None

    def fill(
        self, *, rank: int = 0, ranks: int = 1, told: Callable[[int, int], None] = lambda done, total: None
    ) -> Filled:
        """Computes what the first epoch needs and the store has not: all latents, then all embeddings.

        So one encoder is resident at a time, and none afterwards, unless it was before.

        Args:
            rank, ranks: which part of the samples is this process's.
            told: is called after each result with how many are done of how many.
        """
        assert self.store is not None, "without a store there is nothing to fill"
        before, mine = self.store.writes, range(rank, len(self), ranks)
        captions = dict.fromkeys(self._captions)
        done, total, notes = 0, len(mine), list[str]()
        latents = self._without_embeds()
        with self._encoder.alone():
            for index in mine:
                captions[latents.sample(index, 0).caption] = None
                told(done := done + 1, total)
        computed = self.store.writes - before
        if not self._with_embeds:
            return Filled(latents=computed, embeds=0, found=done - computed, notes=())
        total += len(captions)
        with self._encoder.alone():
            for caption in captions:
                notes += [f"caption {caption!r}: {note}" for note in self._embeds(caption).notes]
                told(done := done + 1, total)
        both = self.store.writes - before
        return Filled(latents=computed, embeds=both - computed, found=done - both, notes=tuple(notes))

    def _without_embeds(self) -> Encoded:
        return Encoded(self._source, self._encoder, self.store, with_embeds=False)

    def _latent(self, index: int, name: str, origin: Origin, made: Callable[[], Sample]) -> Latent:
        bucket = self.bucket(index)
        shape = self._encoder.card.geometry(Size(bucket.width, bucket.height), bucket.frames).latent
        key = self._encoder.posterior_key(origin)
        found = self._kept(key, lambda: self._posterior(name, made(), shape))
        if (other := _misshapen(found, shape)) is not None:
            assert self.store is not None and key is not None, "what is computed is checked before"
            raise unusable(self.store.path(key), f"holds a latent {list(other)} and not {list(shape)}")
        return Latent(mean=found.tensors["mean"], std=found.tensors.get("std"))

    def _posterior(self, name: str, made: Sample, shape: tuple[int, ...]) -> CallOutput:
        found = self._encoder.posterior(cast(Pixels, made.content).frames, name)
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

    def _kept(self, key: CacheKey | None, compute: Callable[[], CallOutput]) -> CallOutput:
        if self.store is None or key is None:
            return compute()
        found = self.store.read(key)
        if found is None:
            found = compute()
            self.store.write(key, found)
        return found


def _misshapen(found: CallOutput, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The first shape that is not the one that a latent has; None: all are."""
    return next((tuple(one.shape) for one in found.tensors.values() if tuple(one.shape) != shape), None)
