"""Components alone: strict loading, the text side, statistics, and images on their way in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fv_core import Engine, Request
from fv_core.errors import WeightsError
from fv_core.loop import ResolvedCall
from fv_core.request import Numerics
from fv_core.runtime.instance import ModelInstance
from fv_ltx2.card import TINY_DISTILLED
from fv_ltx2.packing import pack, pack_audio, unpack, unpack_audio


def call(static: dict[str, Any] | None = None, **rows: Any) -> ResolvedCall:
    return ResolvedCall(rows=rows, static=static or {}, caches=())


def tensors(component: Any, op: str, one: ResolvedCall) -> dict[str, Any]:
    (out,) = component.forward_batch(op, [one])
    return dict(out.output.tensors)


@pytest.fixture(scope="module")
def instance(reference: Any) -> Iterator[ModelInstance]:
    engine = Engine([TINY_DISTILLED], device="cpu", dtype="float32", weights=reference.folder)
    yield engine.instance("ltx2/tiny")
    engine.close()


def test_packing_comes_back() -> None:
    video, audio = torch.randn(5, 2, 3, 4), torch.randn(4, 7, 2)
    assert torch.equal(unpack(pack(video), (2, 3, 4)), video)
    assert torch.equal(unpack_audio(pack_audio(audio), 4), audio)
    assert torch.equal(pack(video)[5], video[:, 0, 1, 1])
    assert torch.equal(pack_audio(audio)[3], audio[:, 3].flatten())


def test_prompts_are_padded_on_the_left_and_all_layers_are_there(instance: ModelInstance) -> None:
    text: Any = instance.component("text")
    found = tensors(text, "encode", call(text="  a red circle \n"))
    mask, hidden = found["mask"], found["hidden"]
    used = int(mask.sum())
    assert hidden.shape == (64, 32 * 3)
    assert 3 <= used < 20
    assert mask.tolist() == [0] * (64 - used) + [1] * used
    ids = text.tokenizer("a red circle").input_ids
    assert len(ids) == used
    embedded = text.module.embed_tokens(torch.tensor([ids]))[0]
    assert torch.equal(hidden.unflatten(1, (32, 3))[64 - used :, :, 0], embedded)


def test_language_model_is_loaded_without_the_rest_of_gemma(instance: ModelInstance, reference: Any) -> None:
    text: Any = instance.component("text")
    stored = load_file(reference.folder / "text_encoder" / "model.safetensors")
    assert any(name.startswith("vision_tower") for name in stored)
    own = {f"language_model.model.{name}": value for name, value in text.module.named_parameters()}
    assert own.keys() == {name for name in stored if name.startswith("language_model.model.")}
    assert all(torch.equal(value, stored[name]) for name, value in own.items())


def test_both_prompts_go_through_the_connectors_negative_first(instance: ModelInstance) -> None:
    text, connectors = instance.component("text"), instance.component("connectors")
    prompts = [tensors(text, "encode", call(text=prompt)) for prompt in ("a red circle", "blurry")]
    rows = {**prompts[0], **{f"negative_{name}": value for name, value in prompts[1].items()}}
    both = tensors(connectors, "connect", call(**rows))
    alone = tensors(connectors, "connect", call(**prompts[0]))
    assert both["video"].shape == both["audio"].shape == (2, 64, 32)
    torch.testing.assert_close(both["video"][1], alone["video"][0])
    assert not torch.allclose(both["video"][0], both["video"][1])


def test_statistics_are_those_of_the_autoencoders(instance: ModelInstance) -> None:
    statistics: Any = instance.component("statistics")
    for part, name in ((statistics.module.video, "vae"), (statistics.module.audio, "audio_vae")):
        module: Any = instance.component(name).module
        assert torch.equal(part.latents_mean, module.latents_mean)
        assert torch.equal(part.latents_std, module.latents_std)
        assert part.latents_std.std() > 0.1


def test_normalising_undoes_denormalising(instance: ModelInstance) -> None:
    statistics = instance.component("statistics")
    given: dict[str, Any] = {"latent": torch.randn(8, 2, 2, 3), "audio_latent": torch.randn(9, 8)}
    plain = tensors(statistics, "denormalise", call(**given))
    back = tensors(statistics, "normalise", call(**plain))
    for name, value in given.items():
        assert not torch.allclose(plain[name], value, atol=0.05)
        torch.testing.assert_close(back[name], value)


def test_image_is_encoded_at_the_stages_size(instance: ModelInstance) -> None:
    vae = instance.component("vae")
    image = torch.randint(0, 255, (64, 128, 3), dtype=torch.uint8)
    (out,) = vae.forward_batch("encode", [call({"divisor": 2}, image=image, width=128, height=64)])
    assert out.output.tensors["latent"].shape == (8, 1, 1, 2)
    assert out.output.notes == ()


def test_calls_leave_their_rows_alone(instance: ModelInstance) -> None:
    latent = torch.randn(8, 2, 2, 2)
    kept = latent.clone()
    tensors(instance.component("vae"), "decode", call(latent=latent))
    tensors(instance.component("upsampler"), "upsample", call(latent=latent))
    assert torch.equal(latent, kept)


def test_rows_of_another_type_are_refused(instance: ModelInstance) -> None:
    with pytest.raises(TypeError, match="latent"):
        tensors(instance.component("vae"), "decode", call(latent="noise"))
    image = torch.zeros(32, 32, 3, dtype=torch.uint8)
    with pytest.raises(TypeError, match="width"):
        tensors(instance.component("vae"), "encode", call({"divisor": 1}, image=image, width=32.5, height=32))
    asked = call(
        latent=torch.zeros(1, 8), audio_latent=torch.zeros(1, 8), text_video=torch.zeros(1, 1, 1),
        text_audio=torch.zeros(1, 1, 1), text_mask=torch.zeros(1, 1),
        frames=1, height=1, width=1, clean=0, fps="24",
    )  # fmt: skip
    with pytest.raises(TypeError, match="fps"):
        instance.component("transformer").batch_key("velocity", replace(asked, numerics=Numerics.FAST))


@pytest.mark.parametrize(
    ("folder", "tensor", "component"),
    [
        ("vae", "latents_std", "statistics"),
        ("audio_vae", "latents_mean", "statistics"),
        ("transformer", "proj_in.weight", "transformer"),
        ("text_encoder", "language_model.model.norm.weight", "text"),
        ("vocoder", "mel_stft.mel_basis", "vocoder"),
    ],
)
def test_missing_tensor_is_refused_by_name(
    folder: str, tensor: str, component: str, reference: Any, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(reference.folder, copy)
    (file,) = (copy / folder).glob("*.safetensors")
    stored = load_file(file)
    del stored[tensor]
    save_file(stored, file)
    engine = Engine([TINY_DISTILLED], device="cpu", dtype="float32", weights=copy)
    with pytest.raises(WeightsError) as caught:
        engine.instance("ltx2/tiny").component(component)
    engine.close()
    assert caught.value.code == "FV254"
    assert tensor.removeprefix("language_model.model.") in str(caught.value)


def test_a_seed_in_bfloat16_has_all_of_the_vocoder_in_it() -> None:
    """As a folder of weights has: a buffer left in fp32 would meet samples of another type."""
    with Engine(["ltx2/tiny"], device="cpu", dtype="bfloat16") as engine:
        clip = engine.run(Request(prompt="a red circle", model="ltx2/tiny", seed=1, size=(64, 64), frames=9))
    assert clip.used.dtype == "bfloat16" and clip.audio is not None
    assert np.isfinite(clip.audio.samples).all() and clip.audio.samples.std() > 0
