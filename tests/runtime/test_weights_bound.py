"""Weights are checked before the first step, and other weights of the same folder name are told apart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from safetensors.torch import load_file, save_file
from transformers import UMT5Config, UMT5EncoderModel

import fv_wan21
from fv_core import Engine, Request, derive
from fv_core.errors import FvError, PluginError, WeightsError
from fv_core.runtime.records.certified import weights_hash
from fv_wan21.card import MICRO

Ask = Callable[..., Request]
VAE = Path("vae") / "diffusion_pytorch_model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    made = tmp_path / "a" / "wan"
    UMT5EncoderModel(UMT5Config(**MICRO.components["text"].config)).save_pretrained(made / "text_encoder")
    WanTransformer3DModel(**MICRO.components["transformer"].config).save_pretrained(made / "transformer")
    AutoencoderKLWan(**MICRO.components["vae"].config).save_pretrained(made / "vae")
    shutil.copytree(Path(fv_wan21.__file__).parent / "assets" / "tokenizer", made / "tokenizer")
    return made


def damage(folder: Path) -> None:
    (folder / VAE).write_bytes((folder / VAE).read_bytes()[:-1])


def rename(folder: Path) -> None:
    tensors = load_file(folder / VAE)
    save_file(
        {name.replace("decoder.conv_in", "decoder.conv_inn"): t for name, t in tensors.items()}, folder / VAE
    )


@pytest.mark.parametrize(("change", "code"), [(damage, "FV253"), (rename, "FV254")])
def test_the_last_component_is_checked_before_the_first_step(
    change: Callable[[Path], None], code: str, folder: Path, ask: Ask
) -> None:
    change(folder)
    with Engine([MICRO], device="cpu", weights=folder) as engine:
        with pytest.raises(WeightsError) as refusal:
            engine.start(ask())
        assert refusal.value.code == code
        assert "vae" in str(refusal.value) or "AutoencoderKLWan" in str(refusal.value)
        assert engine.instance("wan21/micro").loaded == ()


def test_a_sound_folder_of_another_architecture_does_not_run_under_the_card(folder: Path, ask: Ask) -> None:
    shutil.rmtree(folder / "transformer")
    wider = {**MICRO.components["transformer"].config, "num_layers": 3}
    WanTransformer3DModel(**wider).save_pretrained(folder / "transformer")
    assert json.loads((folder / "transformer" / "config.json").read_text())["num_layers"] == 3
    with Engine([MICRO], device="cpu", weights=folder) as engine:
        with pytest.raises(WeightsError) as refusal:
            engine.start(ask())
        assert (refusal.value.code, refusal.value.value, refusal.value.legal) == ("FV254", 3, "2")
        assert refusal.value.name.startswith("component transformer: num_layers of ")
        assert engine.instance("wan21/micro").loaded == ()


def test_a_folder_with_parameters_that_the_card_does_not_state_is_refused(folder: Path, ask: Ask) -> None:
    """Keys beyond the card's can add tensors too."""
    shutil.rmtree(folder / "transformer")
    more = {**MICRO.components["transformer"].config, "added_kv_proj_dim": 32}
    WanTransformer3DModel(**more).save_pretrained(folder / "transformer")
    with Engine([MICRO], device="cpu", weights=folder) as engine, pytest.raises(WeightsError) as refusal:
        engine.start(ask())
    assert refusal.value.code == "FV254"
    assert refusal.value.name.startswith("component transformer: number of parameters of ")


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "{}", None], ids=repr)
@pytest.mark.parametrize(
    "name", ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "text_encoder/config.json"]
)
def test_a_bad_tokenizer_or_config_is_named_before_the_first_step(
    name: str, text: str | None, folder: Path, ask: Ask
) -> None:
    if (name, text) == ("text_encoder/config.json", "{}"):
        text = '{"d_model": "wide"}'
    (folder / name).unlink() if text is None else (folder / name).write_text(text)
    with Engine([MICRO], device="cpu", weights=folder) as engine, pytest.raises(WeightsError) as refusal:
        engine.start(ask())
    assert refusal.value.code in ("FV252", "FV253", "FV254")
    assert str(folder / name) in refusal.value.name


def test_a_config_that_the_library_refuses_is_named(folder: Path, ask: Ask) -> None:
    file = folder / "text_encoder" / "config.json"
    spec = MICRO.components["text"]
    config = {**spec.config, "feed_forward_proj": "thrice-gated-nothing"}
    card = derive(MICRO, components={**MICRO.components, "text": replace(spec, config=config)})
    file.write_text(json.dumps(config))
    with Engine([card], device="cpu", weights=folder) as engine, pytest.raises(WeightsError) as refusal:
        engine.start(ask())
    assert (refusal.value.code, refusal.value.name) == ("FV253", str(file))
    assert "component text of wan21/micro cannot be made from it (" in refusal.value.rule


def test_a_tokenizer_of_more_words_than_the_encoder_knows_is_refused(folder: Path, ask: Ask) -> None:
    file = folder / "tokenizer" / "tokenizer.json"
    words = json.loads(file.read_text())
    words["added_tokens"].append({**words["added_tokens"][0], "id": 145, "content": "<more>"})
    file.write_text(json.dumps(words))
    with Engine([MICRO], device="cpu", weights=folder) as engine, pytest.raises(WeightsError) as refusal:
        engine.start(ask())
    assert (refusal.value.code, refusal.value.name) == ("FV254", str(file))


def test_a_factory_that_fails_without_a_folder_is_the_plugins_fault(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(Path(fv_wan21.__file__).parent / "assets" / "tokenizer", tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{")
    monkeypatch.setattr("fv_wan21.loading._ASSETS", tmp_path)
    with Engine([MICRO], device="cpu") as engine, pytest.raises(PluginError) as refusal:
        engine.run(ask())
    assert refusal.value.code == "FV120"
    assert "component text of wan21/micro" in refusal.value.name


def test_a_snapshot_does_not_resume_on_other_weights_of_the_same_name(
    folder: Path, ask: Ask, tmp_path: Path
) -> None:
    other = tmp_path / "b" / "wan"
    shutil.copytree(folder, other)
    tensors = load_file(other / VAE)
    save_file({name: t * 1.5 for name, t in tensors.items()}, other / VAE)
    with Engine([MICRO], device="cpu", weights=folder) as engine:
        job = engine.start(ask())
        job.step()
        taken = engine.snapshot(job)
        job.close()
    with Engine([MICRO], device="cpu", weights=other) as engine, pytest.raises(FvError) as refusal:
        engine.resume(taken)
    assert refusal.value.code == "FV504"
    assert "weights" in str(refusal.value)


def more_config(folder: Path) -> None:
    path = folder / "transformer" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eps": 0.5}))


def other_words(folder: Path) -> None:
    path = folder / "tokenizer" / "tokenizer.json"
    path.write_text(path.read_text() + " ")


def retold_readme(folder: Path) -> None:
    (folder / ".cache").mkdir()
    (folder / ".cache" / "note.json").write_text("{}")
    (folder / "README.md").write_text("a model")


@pytest.mark.parametrize(
    ("change", "other"), [(more_config, True), (other_words, True), (retold_readme, False)]
)
def test_files_beside_the_tensors_are_part_of_the_weights(
    change: Callable[[Path], None], other: bool, folder: Path
) -> None:
    def told() -> tuple[str, str]:
        with Engine([MICRO], device="cpu", weights=folder) as engine:
            instance = engine.instance("wan21/micro")
            return weights_hash(instance), instance.fingerprint()

    before = told()
    change(folder)
    after = told()
    assert [one != two for one, two in zip(before, after, strict=True)] == [other, other]
