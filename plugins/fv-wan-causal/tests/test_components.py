"""The components: encoding against the autoencoder's own, and nothing kept in a module between calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fv_core.cache import CacheContent
from fv_core.errors import RequestError
from fv_core.loop import ResolvedCall
from fv_core.request import Numerics
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.testing.sharing import moved_by_sharing
from fv_wan_causal.card import TINY


@pytest.fixture(scope="module")
def instance() -> ModelInstance:
    return ModelInstance(
        TINY, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.NONE
    )


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def call(caches: tuple[CacheContent, ...] = (), **rows: Any) -> ResolvedCall:
    return ResolvedCall(rows=rows, static={}, caches=caches)


def pixels(*shape: int) -> Tensor:
    return torch.randint(
        0, 256, (*shape, 3), generator=torch.Generator("cpu").manual_seed(3), dtype=torch.uint8
    )


def encoded(instance: ModelInstance, frames: Tensor, width: int = 48, height: int = 32) -> Tensor:
    (out,) = instance.component("vae").forward_batch(
        "encode", [call(pixels=frames, width=width, height=height)]
    )
    return out.output.tensors["latent"]


@pytest.mark.parametrize("frames", [1, 5, 9])
def test_encoded_clip_equals_the_autoencoders_own_bit_for_bit(frames: int, instance: ModelInstance) -> None:
    clip = pixels(frames, 32, 48)
    module: Any = instance.component("vae").module
    mean, std = (
        torch.tensor(module.config[f"latents_{name}"]).view(1, 16, 1, 1, 1) for name in ("mean", "std")
    )
    inside = (clip.permute(3, 0, 1, 2)[None] / 255 - 0.5) / 0.5
    theirs = (module.encode(inside).latent_dist.mode() - mean) * (1.0 / std)
    mine = encoded(instance, clip)
    assert mine.shape == (16, (frames - 1) // 4 + 1, 4, 6)
    assert torch.equal(mine, theirs[0])


def test_an_image_is_a_clip_of_one_frame(instance: ModelInstance) -> None:
    image = pixels(32, 48)
    assert torch.equal(encoded(instance, image), encoded(instance, image[None]))


@pytest.mark.parametrize(
    ("frames", "size", "code"), [(5, (64, 32), "FV302"), (5, (32, 48), "FV302"), (4, (48, 32), "FV303")]
)
def test_pixels_that_do_not_fit_the_clip_are_refused(
    frames: int, size: tuple[int, int], code: str, instance: ModelInstance
) -> None:
    with pytest.raises(RequestError) as refused:
        encoded(instance, pixels(frames, 32, 48), *size)
    assert refused.value.code == code


def test_nothing_is_kept_in_the_module(instance: ModelInstance) -> None:
    module: Any = instance.component("vae").module
    before = {name: id(value) for name, value in vars(module).items()}
    clip = pixels(5, 32, 48)
    first = encoded(instance, clip)
    assert torch.equal(encoded(instance, clip), first)
    assert {name: id(value) for name, value in vars(module).items()} == before


def chunk(op: str, window: CacheContent, text: CacheContent, start: int) -> ResolvedCall:
    noise = torch.randn(16, 3, 4, 4, generator=torch.Generator("cpu").manual_seed(start))
    return call((window, text), latent=noise, timestep=500.0, start=start, sink=1, recent=3, times=3)


def test_tensors_of_a_cache_are_never_changed_in_place(instance: ModelInstance) -> None:
    """A list that was kept still gives the same chunk; only the list that a commit is given is its own to fill."""
    denoiser = instance.component("transformer")
    (out,) = denoiser.forward_batch("text", [call(([],), text=torch.randn(512, 32))])
    text = out.caches[0]
    assert text is not None
    windows: list[CacheContent] = [[]]
    for start in (0, 3, 6):
        (out,) = denoiser.forward_batch("commit", [chunk("commit", list(windows[-1]), text, start)])
        assert out.caches[1] is None and out.caches[0] is not None
        windows.append(out.caches[0])
    copies = [[part.clone() for part in window if isinstance(part, Tensor)] for window in windows]
    (last,) = denoiser.forward_batch("commit", [chunk("commit", list(windows[-1]), text, 9)])
    (read,) = denoiser.forward_batch("velocity", [chunk("velocity", list(windows[-1]), text, 9)])
    assert read.caches == (None, None)
    assert torch.equal(read.output.tensors["velocity"], last.output.tensors["velocity"])
    for window, copy in zip(windows, copies, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(window, copy, strict=True))  # type: ignore[arg-type]
    assert [len(window[0]) if window else 0 for window in windows] == [0, 12, 24, 28]  # type: ignore[arg-type]


def test_calls_leave_their_rows_and_the_parameters_alone(instance: ModelInstance) -> None:
    modules: list[nn.Module] = [instance.component(name).module for name in TINY.components]
    before = [parameter.clone() for module in modules for parameter in module.parameters()]
    clip = pixels(5, 32, 48)
    kept = clip.clone()
    encoded(instance, clip)
    text = torch.randn(512, 32)
    (out,) = instance.component("transformer").forward_batch("text", [call(([],), text=text)])
    request = chunk("commit", [], out.caches[0] or [], 0)
    latent = request.rows["latent"]
    assert isinstance(latent, Tensor)
    noise = latent.clone()
    instance.component("transformer").forward_batch("commit", [request])
    assert torch.equal(clip, kept) and torch.equal(latent, noise)
    after = [parameter for module in modules for parameter in module.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert not any(parameter.requires_grad for parameter in after)


def test_no_call_of_the_autoencoder_shares_a_forward(instance: ModelInstance) -> None:
    calls = [call(([],), latent=torch.zeros(16, 1, 4, 4)) for _ in range(2)]
    assert len({instance.component("vae").batch_key("decode", each) for each in calls}) == 2


def test_rows_past_the_end_of_a_prompt_are_zero_and_a_cut_prompt_is_told(instance: ModelInstance) -> None:
    text = instance.component("text")
    short, long = text.forward_batch("encode", [call(text=" a  red\ncircle"), call(text="circle " * 600)])
    embeds = short.output.tensors["embeds"]
    used = int((embeds.abs().sum(dim=1) > 0).sum())
    assert embeds.shape == (512, 32)
    assert 3 <= used < 20 and not embeds[used:].any()
    assert short.output.notes == ()
    assert "cut to the 512" in long.output.notes[0]
    (clean,) = text.forward_batch("encode", [call(text="a red circle")])
    torch.testing.assert_close(clean.output.tensors["embeds"], embeds, rtol=0, atol=1e-5)


def test_prompts_of_any_length_share_a_forward_with_their_own_bits(instance: ModelInstance) -> None:
    prompts = [call(text="a red circle moving right " * (index % 6) + str(index)) for index in range(16)]
    assert moved_by_sharing(instance.component("text"), "encode", prompts, Numerics.EXACT) == 0.0


@pytest.mark.parametrize(
    ("component", "op", "rows"),
    [
        ("transformer", "text", {"text": "words"}),
        ("vae", "prepare", {"latent": 3}),
        ("vae", "encode", {"pixels": "picture", "width": 1, "height": 1}),
    ],
)
def test_row_of_another_type_is_refused(
    component: str, op: str, rows: dict[str, Any], instance: ModelInstance
) -> None:
    with pytest.raises(TypeError, match="is a tensor"):
        instance.component(component).forward_batch(op, [call(([],), **rows)])
