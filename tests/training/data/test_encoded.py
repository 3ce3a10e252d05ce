"""Latents and embeddings from a store: those that the encoders give, found by key, and nothing else passes for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file

from fv_core import Engine, Request, TaskType
from fv_core.cache import CacheKey
from fv_core.cache.pool import FEATURE
from fv_core.errors import RunError, TrainError
from fv_core.loop.keyed import DrawKey, keyed_normal
from fv_core.request import Numerics
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.training import maths
from fv_core.training.contract import Bucket, Latent, Pixels, Sample, Source
from fv_core.training.data.encoded import Encoded, Outlined
from fv_core.training.data.encoder import Encoder
from fv_core.training.data.store import FeatureStore

TALL = (5, 48, 32)


@pytest.fixture(scope="module")
def instance() -> ModelInstance:
    from fv_core.plugins import find_card

    return ModelInstance(
        find_card("wan21/micro"),
        device=torch.device("cpu"),
        dtype=torch.float32,
        folder=None,
        offload=Offload.NONE,
    )


@pytest.fixture
def encoder(instance: ModelInstance) -> Encoder:
    for component in instance.loaded:
        instance.unload(component)
    return Encoder(instance)


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore(tmp_path / ".features")


@pytest.fixture
def clips(data: Any) -> Outlined:
    """A clip of 9 frames, one of 5, and two captions for three samples."""
    data.clip("a.mp4", caption="a red circle")
    data.clip("b.mp4", frames=6, size=(48, 32), caption="a blue square")
    data.clip("c.mp4", size=(40, 40), caption="a red circle")
    return cast(Outlined, data.open(buckets=((9, 32, 32), TALL)))


def latents(source: Source) -> list[Latent]:
    return [cast(Latent, source.sample(index, 0).content) for index in range(len(source))]


def files(store: FeatureStore) -> list[Path]:
    return sorted(store.folder.rglob("*.safetensors"))


def place(store: FeatureStore, key: CacheKey | None) -> Path:
    assert key is not None
    return store.path(key)


def refused(call: Callable[[], object]) -> TrainError:
    with pytest.raises(TrainError) as caught:
        call()
    assert caught.value.code == "FV724"
    return caught.value


def losses(source: Source) -> torch.Tensor:
    """What each sample comes to at a noise level, noise and draw from its posterior of its own."""
    found = []
    for index, latent in enumerate(latents(source)):
        assert latent.std is not None
        shape = tuple(latent.mean.shape)
        x0 = latent.mean + latent.std * keyed_normal(
            DrawKey(seed=1, purpose="posterior", sample=index), shape
        )
        eps = keyed_normal(DrawKey(seed=1, purpose="noise", sample=index), shape)
        noised = maths.noised(x0[None], eps[None], torch.tensor([0.3]))
        found.append(maths.flow_losses(noised, maths.velocity_target(x0, eps)[None]))
    return torch.cat(found)


def test_stored_and_computed_features_give_equal_losses(
    clips: Outlined, encoder: Encoder, store: FeatureStore
) -> None:
    computed, kept = Encoded(clips, encoder, None), Encoded(clips, encoder, store)
    kept.fill()
    assert torch.equal(losses(computed), losses(kept))
    for index in range(len(clips)):
        one, other = computed.sample(index, 0), kept.sample(index, 0)
        assert (one.id, one.caption) == (other.id, other.caption)
        assert one.embeds is not None and other.embeds is not None
        assert torch.equal(one.embeds, other.embeds)


def test_a_stored_draw_would_give_others(clips: Outlined, encoder: Encoder, store: FeatureStore) -> None:
    """The control: what is stored as mean and deviation is what the autoencoder says, and no draw of it."""
    kept = Encoded(clips, encoder, store)
    before = losses(kept)
    for path in files(store):
        tensors = load_file(path)
        if "std" in tensors:
            assert tensors["std"].min() > 0
            drawn = {"mean": tensors["mean"] + 0.5 * tensors["std"], "std": tensors["std"]}
            with_key(path, path, drawn)
    assert not torch.equal(losses(kept), before)


def with_key(key_of: Path, to: Path, tensors: dict[str, torch.Tensor]) -> None:
    from safetensors import safe_open

    with safe_open(key_of, framework="pt") as file:
        told = file.metadata()
    save_file(tensors, to, told)


def test_each_encoder_is_resident_alone_and_only_while_it_is_needed(
    clips: Outlined, encoder: Encoder, store: FeatureStore, instance: ModelInstance
) -> None:
    resident = []
    filled = Encoded(clips, encoder, store).fill(
        told=lambda done, total: resident.append((done, instance.loaded))
    )
    assert resident == [(1, ("vae",)), (2, ("vae",)), (3, ("vae",)), (4, ("text",)), (5, ("text",))]
    assert instance.loaded == ()
    assert (filled.latents, filled.embeds, filled.found) == (3, 2, 0)


def test_what_was_resident_before_stays(
    clips: Outlined, encoder: Encoder, store: FeatureStore, instance: ModelInstance
) -> None:
    instance.component("text")
    Encoded(clips, encoder, store).fill()
    assert instance.loaded == ("text",)


def test_a_full_store_needs_no_encoder(
    clips: Outlined, encoder: Encoder, store: FeatureStore, instance: ModelInstance, data: Any
) -> None:
    Encoded(clips, encoder, store).fill()
    shutil.rmtree(data.folder / "a.mp4", ignore_errors=True)
    (data.folder / "a.mp4").unlink()  # nor the files
    again = Encoded(clips, encoder, store)
    filled = again.fill()
    assert (filled.latents, filled.embeds, filled.found) == (0, 0, 5)
    assert len(latents(again)) == 3 and instance.loaded == ()


def test_parts_of_two_ranks_are_the_whole(clips: Outlined, encoder: Encoder, store: FeatureStore) -> None:
    parts = [Encoded(clips, encoder, store).fill(rank=rank, ranks=2) for rank in range(2)]
    assert sum(part.latents for part in parts) == 3
    assert Encoded(clips, encoder, store).fill().found == 5


def test_another_geometry_is_another_key_and_is_computed(
    data: Any, encoder: Encoder, store: FeatureStore
) -> None:
    data.clip("a.mp4", size=(64, 64))
    small = Encoded(data.open(), encoder, store)
    assert latents(small)[0].mean.shape == (16, 3, 4, 4)
    large = Encoded(data.open(buckets=((9, 64, 64),)), encoder, store)
    assert latents(large)[0].mean.shape == (16, 3, 8, 8)
    assert len(files(store)) == 3  # two latents, one caption


def test_features_of_another_geometry_in_the_place_of_others_are_refused(
    clips: Outlined, encoder: Encoder, store: FeatureStore
) -> None:
    """A file that was put there by hand: its name says one geometry, its key another."""
    kept = Encoded(clips, encoder, store)
    kept.fill()
    first, second = (
        place(store, encoder.posterior_key(clips.outline(index, 0).origin)) for index in range(2)
    )
    shutil.copy(second, first)
    error = refused(lambda: kept.sample(0, 0))
    assert "is of another call: inputs is" in error.rule and "height" in error.rule
    assert "Delete the file" in error.remedy


def test_a_latent_of_another_shape_than_its_buckets_is_refused(
    clips: Outlined, encoder: Encoder, store: FeatureStore
) -> None:
    kept = Encoded(clips, encoder, store)
    kept.fill()
    path = place(store, encoder.posterior_key(clips.outline(0, 0).origin))
    with_key(path, path, {name: one[:, :2].contiguous() for name, one in load_file(path).items()})
    assert refused(lambda: kept.sample(0, 0)).rule == "holds a latent [16, 2, 4, 4] and not [16, 3, 4, 4]"


@pytest.mark.parametrize("harm", ["cut", "words", "no key"])
def test_damaged_features_are_refused(
    clips: Outlined, encoder: Encoder, store: FeatureStore, harm: str
) -> None:
    kept = Encoded(clips, encoder, store)
    kept.fill()
    for path in files(store):
        whole = path.read_bytes()
        if harm == "no key":
            save_file(load_file(path), path)
        else:
            path.write_bytes(whole[: len(whole) // 2] if harm == "cut" else b"words")
    refused(lambda: kept.sample(0, 0))


def test_what_is_not_finite_is_never_stored(
    clips: Outlined, encoder: Encoder, store: FeatureStore, instance: ModelInstance
) -> None:
    module = instance.component("vae").module
    with torch.no_grad():
        next(module.encoder.parameters()).fill_(torch.nan)  # type: ignore[union-attr]
    with pytest.raises(RunError) as caught:
        Encoded(clips, encoder, store).fill()
    assert caught.value.code == "FV501" and "a.mp4" in caught.value.name
    assert files(store) == []


def test_how_a_caption_was_cut_is_told_from_the_store_too(
    data: Any, encoder: Encoder, store: FeatureStore
) -> None:
    data.clip("a.mp4", caption="red " * 600)
    for _ in range(2):
        (note,) = Encoded(data.open(), encoder, store).fill().notes
        assert "was cut to the 512" in note


def test_a_source_that_cannot_tell_its_pixels_is_keyed_by_them(
    clips: Outlined, encoder: Encoder, store: FeatureStore
) -> None:
    class Drawn:
        """Other pixels in every epoch."""

        def __len__(self) -> int:
            return 1

        def bucket(self, index: int) -> Bucket:
            return clips.bucket(0)

        def sample(self, index: int, epoch: int) -> Sample:
            frames = cast(Pixels, clips.sample(0, 0).content).frames
            return Sample(id="drawn", caption="a circle", content=Pixels(frames=frames + epoch))

    kept = Encoded(Drawn(), encoder, store)
    first, second = (cast(Latent, kept.sample(0, epoch).content).mean for epoch in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(cast(Latent, kept.sample(0, 1).content).mean, second)
    assert len(files(store)) == 3


def test_without_embeddings_no_caption_is_encoded(
    clips: Outlined, encoder: Encoder, store: FeatureStore, instance: ModelInstance
) -> None:
    kept = Encoded(clips, encoder, store, with_embeds=False)
    filled = kept.fill()
    assert (filled.latents, filled.embeds) == (3, 0)
    assert kept.sample(0, 0).embeds is None and instance.loaded == ()


def test_other_weights_are_another_key_and_changed_ones_are_not_stored(
    clips: Outlined, encoder: Encoder, store: FeatureStore, instance: ModelInstance
) -> None:
    """What a trained component comes to in one process is not what it comes to in another."""
    before = encoder.embeds_key("a circle"), encoder.posterior_key(clips.outline(0, 0).origin)
    instance.component("transformer")
    instance.weights_changed("transformer")
    assert before == (encoder.embeds_key("a circle"), encoder.posterior_key(clips.outline(0, 0).origin))
    instance.component("vae")
    instance.weights_changed("vae")
    assert encoder.posterior_key(clips.outline(0, 0).origin) is None
    latents(Encoded(clips, encoder, store, with_embeds=False))
    assert files(store) == []
    instance.unload("vae")
    assert encoder.posterior_key(clips.outline(0, 0).origin) == before[1]


def test_embeddings_have_the_key_that_serving_finds_them_by() -> None:
    """A served prompt's features lie under the key that training looks a caption up by, with equal bits."""
    with Engine(["wan21/micro"], device="cpu") as engine:
        request = Request(
            task=TaskType.T2V, model="wan21/micro", prompt="a red circle", steps=1, frames=1,
            numerics=Numerics.REFERENCE,
        )  # fmt: skip
        (result,) = engine.run_many([request])
        assert result.error is None
        encoder = Encoder(engine.instance("wan21/micro"))
        key = encoder.embeds_key("a red circle")
        entry = served(engine, key)
        assert torch.equal(cast(torch.Tensor, entry), encoder.embeds("a red circle").tensors["embeds"])
        assert served(engine, encoder.embeds_key("a red square")) is None


def served(engine: Engine, key: CacheKey | None) -> object:
    assert key is not None
    entry = engine._stores.pools[FEATURE].find(key)
    return None if entry is None else entry.content[1]
