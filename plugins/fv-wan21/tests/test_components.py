"""The components: streaming decode against the one-shot one, and nothing kept in a module between calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fv_core.cache import CacheContent
from fv_core.loop import ResolvedCall
from fv_core.runtime.instance import ModelInstance, Offload
from fv_wan21.card import MICRO


@pytest.fixture(scope="module")
def instance() -> ModelInstance:
    return ModelInstance(
        MICRO, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.NONE
    )


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def call(
    caches: tuple[CacheContent, ...] = (), static: dict[str, bool] | None = None, **rows: Any
) -> ResolvedCall:
    return ResolvedCall(rows=rows, static=static or {}, caches=caches)


def latents(frames: int, seed: int = 0, height: int = 4, width: int = 6) -> Tensor:
    return torch.randn(16, frames, height, width, generator=torch.Generator("cpu").manual_seed(seed))


class Streaming:
    """A decode in progress, one latent frame at a time; its cache is a value that it carries."""

    def __init__(self, vae: Any, latent: Tensor) -> None:
        self._vae = vae
        (prepared,) = vae.forward_batch("prepare", [call(latent=latent)])
        self._latent = prepared.output.tensors["latent"]
        self.cache: CacheContent = []
        self.chunks: list[Tensor] = []

    def step(self) -> None:
        index = len(self.chunks)
        row = self._latent[:, index : index + 1]
        (out,) = self._vae.forward_batch(
            "decode", [call((list(self.cache),), {"first": index == 0}, latent=row)]
        )
        (self.cache,) = out.caches
        self.chunks.append(out.output.tensors["frames"])


def streamed(vae: Any, latent: Tensor) -> Tensor:
    decode = Streaming(vae, latent)
    for _ in range(latent.shape[1]):
        decode.step()
    return torch.cat(decode.chunks)


def one_shot(vae: Any, latent: Tensor) -> Tensor:
    """The pipeline's decode: latents to the decoder's space, `AutoencoderKLWan.decode`, to [0, 1]."""
    config = vae.module.config
    mean = torch.tensor(config.latents_mean).view(1, 16, 1, 1, 1)
    std = 1.0 / torch.tensor(config.latents_std).view(1, 16, 1, 1, 1)
    video = vae.module.decode(latent[None] / std + mean, return_dict=False)[0]
    frames: Tensor = (video * 0.5 + 0.5).clamp(0, 1)[0].permute(1, 2, 3, 0)
    return frames


@pytest.mark.parametrize("frames", [1, 2, 3, 5])
def test_streamed_decode_equals_the_one_shot_decode_bit_for_bit(frames: int, instance: ModelInstance) -> None:
    vae, latent = instance.component("vae"), latents(frames)
    mine, theirs = streamed(vae, latent), one_shot(vae, latent)
    assert mine.dtype == torch.float32
    assert mine.shape == (4 * (frames - 1) + 1, 32, 48, 3)
    assert torch.equal(mine, theirs)


def test_chunks_have_one_frame_and_then_four(instance: ModelInstance) -> None:
    decode = Streaming(instance.component("vae"), latents(3))
    for _ in range(3):
        decode.step()
    assert [len(chunk) for chunk in decode.chunks] == [1, 4, 4]


def test_interleaved_decodes_do_not_touch_each_other(instance: ModelInstance) -> None:
    vae = instance.component("vae")
    given = [latents(3, seed=1), latents(3, seed=2)]
    decodes = [Streaming(vae, latent) for latent in given]
    for _ in range(3):
        for decode in decodes:
            decode.step()
    for decode, latent in zip(decodes, given, strict=True):
        assert torch.equal(torch.cat(decode.chunks), one_shot(vae, latent))


def test_nothing_is_kept_in_the_module(instance: ModelInstance) -> None:
    vae: Any = instance.component("vae")
    marker = ["not touched"]
    attributes = dict.fromkeys(("_feat_map", "_enc_feat_map", "_conv_idx", "_enc_conv_idx"), marker)
    vars(vae.module).update(attributes)
    try:
        before = {name: id(value) for name, value in vars(vae.module).items()}
        streamed(vae, latents(3))
        assert {name: id(value) for name, value in vars(vae.module).items()} == before
        assert marker == ["not touched"]
    finally:
        vae.module.clear_cache()


def test_a_cache_that_was_kept_can_be_decoded_from_again(instance: ModelInstance) -> None:
    """Tensors in a cache are never changed in place: an older version still gives the same chunk."""
    vae = instance.component("vae")
    decode = Streaming(vae, latents(3))
    decode.step()
    kept, copies = (
        list(decode.cache),
        [item.clone() if isinstance(item, Tensor) else item for item in decode.cache],
    )
    decode.step()
    decode.step()
    for item, copy in zip(kept, copies, strict=True):
        assert torch.equal(item, copy) if isinstance(copy, Tensor) else item == copy  # type: ignore[arg-type]
    decode.cache, again = kept, decode.chunks[1]
    del decode.chunks[1:]
    decode.step()
    assert torch.equal(decode.chunks[1], again)


def test_calls_leave_their_rows_alone_and_the_parameters_too(instance: ModelInstance) -> None:
    latent, text = latents(2), torch.randn(512, 32)
    velocity = call(latent=latent, timestep=500, text=text)
    kept = latent.clone(), text.clone()
    modules: list[nn.Module] = [instance.component(name).module for name in MICRO.components]
    before = [parameter.clone() for module in modules for parameter in module.parameters()]
    instance.component("transformer").forward_batch("velocity", [velocity])
    streamed(instance.component("vae"), latent)
    assert torch.equal(latent, kept[0])
    assert torch.equal(text, kept[1])
    after = [parameter for module in modules for parameter in module.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert not any(parameter.requires_grad for parameter in after)


def test_rows_past_the_end_of_a_prompt_are_zero_and_all_512_are_there(instance: ModelInstance) -> None:
    text = instance.component("text")
    (out,) = text.forward_batch("encode", [call(text="a red circle")])
    embeds = out.output.tensors["embeds"]
    used = int((embeds.abs().sum(dim=1) > 0).sum())
    assert embeds.shape == (512, 32)
    assert 3 <= used < 20
    assert not embeds[used:].any()
    assert out.output.notes == ()


def test_a_cut_prompt_is_told_with_its_length(instance: ModelInstance) -> None:
    (out,) = instance.component("text").forward_batch("encode", [call(text="circle " * 600)])
    (note,) = out.output.notes
    assert "cut to the 512" in note
    assert out.output.tensors["embeds"].abs().sum(dim=1).all()


@pytest.mark.parametrize("component", ["text", "transformer"])
def test_calls_of_one_forward_come_back_in_order_and_each_in_memory_of_its_own(
    component: str, instance: ModelInstance
) -> None:
    if component == "text":
        op, name, calls = "encode", "embeds", [call(text=prompt) for prompt in ("a", "blue square", "c")]
    else:
        op, name = "velocity", "velocity"
        text = torch.randn(3, 512, 32, generator=torch.Generator("cpu").manual_seed(9))
        calls = [call(latent=latents(2, seed), timestep=100 * seed, text=text[seed]) for seed in range(3)]
    assert len({instance.component(component).batch_key(op, each) for each in calls}) == 1
    together = instance.component(component).forward_batch(op, calls)
    for each, out in zip(calls, together, strict=True):
        (alone,) = instance.component(component).forward_batch(op, [each])
        tensor = out.output.tensors[name]
        torch.testing.assert_close(tensor, alone.output.tensors[name], rtol=0, atol=1e-5)
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_what_differs_in_shape_shares_no_forward(instance: ModelInstance) -> None:
    text = torch.zeros(512, 32)
    calls = [
        call(latent=latents(2), timestep=1, text=text),
        call(latent=latents(1), timestep=1, text=text),
        call(latent=latents(2), timestep=1, text=text[:100]),
    ]
    assert len({instance.component("transformer").batch_key("velocity", each) for each in calls}) == 3
    decodes = [call(latent=latents(1)), call(latent=latents(1))]
    assert len({instance.component("vae").batch_key("decode", each) for each in decodes}) == 2


def test_row_of_another_type_is_refused(instance: ModelInstance) -> None:
    with pytest.raises(TypeError, match="latent"):
        instance.component("transformer").batch_key("velocity", call(latent="noise", text=torch.zeros(1, 32)))


@pytest.mark.parametrize("frames", [1, 5, 17])
def test_the_posterior_of_a_clip_is_that_of_the_one_shot_encode(frames: int, instance: ModelInstance) -> None:
    vae: Any = instance.component("vae")
    pixels = torch.randint(
        0, 256, (frames, 32, 48, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    (out,) = vae.forward_batch("posterior", [call(frames=pixels)])
    config = vae.module.config
    mean = torch.tensor(config.latents_mean).view(16, 1, 1, 1)
    std = torch.tensor(config.latents_std).view(16, 1, 1, 1)
    video = pixels.permute(3, 0, 1, 2)[None].float() / 127.5 - 1
    posterior = vae.module.encode(video).latent_dist
    assert torch.equal(out.output.tensors["mean"], (posterior.mean[0] - mean) * (1 / std))
    assert torch.equal(out.output.tensors["std"], posterior.std[0] * (1 / std))
    assert out.output.tensors["mean"].shape == (16, (frames - 1) // 4 + 1, 4, 6)
    assert out.output.tensors["std"].min() > 0


def test_the_posterior_is_in_the_space_that_is_decoded(instance: ModelInstance) -> None:
    """The mean, decoded by the steps that serve, is what the class makes of its own mode."""
    vae: Any = instance.component("vae")
    pixels = torch.randint(
        0, 256, (5, 32, 48, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    (out,) = vae.forward_batch("posterior", [call(frames=pixels)])
    video = pixels.permute(3, 0, 1, 2)[None].float() / 127.5 - 1
    theirs = vae.module.decode(vae.module.encode(video).latent_dist.mode()).sample[0]
    shown = (theirs * 0.5 + 0.5).clamp(0, 1).permute(1, 2, 3, 0)
    assert (streamed(vae, out.output.tensors["mean"]) - shown).abs().max() < 1e-5
