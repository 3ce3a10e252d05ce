"""LoRA on Wan: equal to diffusers 0.42.1 with peft 0.21.2, whatever tool wrote the file, and to merged weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor

from fv_core import Adapter, Engine, FvError, OutputSpec, Request
from fv_core.request import Numerics
from fv_core.testing.adapters import factors, write_adapter

Pairs: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]
Outputs: TypeAlias = Mapping[str, Tensor]

RANK, ALPHA = 4, 8.0
"""A ratio of two: what diffusers multiplies into the factors of ComfyUI's files is then exact."""

ORIGINAL = {
    ".attn1.to_q": ".self_attn.q", ".attn1.to_k": ".self_attn.k", ".attn1.to_v": ".self_attn.v",
    ".attn1.to_out.0": ".self_attn.o", ".attn2.to_q": ".cross_attn.q", ".attn2.to_k": ".cross_attn.k",
    ".attn2.to_v": ".cross_attn.v", ".attn2.to_out.0": ".cross_attn.o", ".ffn.net.0.proj": ".ffn.0",
    ".ffn.net.2": ".ffn.2",
}  # fmt: skip
"""The official release's names of a block's layers, written out a second time."""


def original(name: str) -> str:
    end = next(end for end in ORIGINAL if name.endswith(end))
    return name.removesuffix(end) + ORIGINAL[end]


@pytest.fixture(scope="module")
def engine(mine: Any, card_for: Callable[..., Any], case_of: type[Any]) -> Engine:
    found: Engine = mine.engine(card_for(case_of()))
    return found


@pytest.fixture(scope="module")
def transformer(engine: Engine) -> Any:
    return engine.instance("wan21/folder").component("transformer").module


@pytest.fixture
def pairs(transformer: Any) -> Callable[..., Pairs]:
    """Factors of the transformer's layers; of the blocks alone where `blocks` says so, as trainers save them."""

    def made(seed: int, *, blocks: bool = True) -> Pairs:
        return factors(transformer, seed=seed, rank=RANK, of=lambda name: not blocks or "blocks." in name)

    return made


@pytest.fixture
def outputs(engine: Engine, case_of: type[Any]) -> Callable[..., Outputs]:
    """fv's outputs with adapters, of numerics reference; one step's worth of time is enough."""

    def made(*adapters: Adapter) -> Outputs:
        case = case_of(steps=3)
        return engine.run(
            Request(
                prompt=case.prompt, seed=case.seed, size=case.size, frames=case.frames, steps=case.steps,
                guidance=case.guidance, params={"shift": case.shift}, numerics=Numerics.REFERENCE,
                adapters=adapters, output=OutputSpec(keep=("latent", "video")),
            )
        ).tensors  # fmt: skip

    return made


@pytest.fixture
def theirs(reference: Any, case_of: type[Any]) -> Callable[..., Outputs]:
    """Diffusers' outputs with the adapters of files, by `load_lora_weights` and `set_adapters`."""

    def made(files: Sequence[Path], weights: Sequence[float]) -> Outputs:
        fresh = type(reference)(reference.folder)
        pipeline = fresh.pipeline("float32")
        names = [f"a{number}" for number, _ in enumerate(files)]
        for file, name in zip(files, names, strict=True):
            pipeline.load_lora_weights(file, adapter_name=name)
        pipeline.set_adapters(names, adapter_weights=list(weights))
        for parameter in pipeline.transformer.parameters():  # mapped factors lie at odd offsets
            parameter.data = parameter.data.clone()
        found: Outputs = fresh.outputs(case_of(steps=3))
        return found

    return made


def write_comfy(path: Path, layers: Pairs, *, alpha: float = ALPHA) -> Path:
    tensors: dict[str, Tensor] = {}
    for name, (down, up) in layers.items():
        tensors[f"diffusion_model.{original(name)}.lora_down.weight"] = down
        tensors[f"diffusion_model.{original(name)}.lora_up.weight"] = up
        tensors[f"diffusion_model.{original(name)}.alpha"] = torch.tensor(alpha)
    save_file(tensors, path)
    return path


def write_kohya(path: Path, layers: Pairs) -> Path:
    tensors: dict[str, Tensor] = {}
    for name, (down, up) in layers.items():
        flat = f"lora_unet_{original(name).replace('.', '_')}"
        tensors |= {f"{flat}.lora_down.weight": down, f"{flat}.lora_up.weight": up}
        tensors[f"{flat}.alpha"] = torch.tensor(ALPHA)
    save_file(tensors, path)
    return path


def write_diffusers(path: Path, layers: Pairs) -> Path:
    """As `WanPipeline.save_lora_weights` does with the metadata of a peft config."""
    from diffusers import WanPipeline

    state = {
        key: tensor
        for name, (down, up) in layers.items()
        for key, tensor in ((f"{name}.lora_A.weight", down), (f"{name}.lora_B.weight", up))
    }
    peft: Any = LoraConfig(r=RANK, lora_alpha=int(ALPHA), target_modules=sorted(layers))
    WanPipeline.save_lora_weights(
        path.parent, state, weight_name=path.name, transformer_lora_adapter_metadata=_plain(peft.to_dict())
    )
    return path


def write_peft(folder: Path, transformer: Any, layers: Pairs) -> Path:
    """The folder that peft itself saves of the transformer."""
    from diffusers import WanTransformer3DModel

    module = WanTransformer3DModel.from_config(transformer.config)
    config = LoraConfig(r=RANK, lora_alpha=int(ALPHA), target_modules=sorted(layers))
    model: Any = get_peft_model(module, config)
    state = {
        f"base_model.model.{name}.lora_{side}.weight": tensor
        for name, pair in layers.items()
        for side, tensor in zip("AB", pair, strict=True)
    }
    set_peft_model_state_dict(model, state)
    model.save_pretrained(folder)
    return folder


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    simple = {name: sorted(value) if isinstance(value, set) else value for name, value in config.items()}
    told: dict[str, Any] = json.loads(json.dumps(simple, default=str))
    return told


def test_one_adapter_equals_diffusers(
    tmp_path: Path, pairs: Any, outputs: Any, theirs: Any, compare: Any
) -> None:
    file = write_adapter(tmp_path / "a.safetensors", dict(pairs(1, blocks=False)))
    with_it = outputs(Adapter(path=str(file), scale=0.7))
    assert compare(with_it, theirs([file], [0.7])) == 0.0
    assert compare(with_it, outputs()) > 1e-2, "the control: the adapter does something"


def test_two_adapters_with_weights_equal_set_adapters(
    tmp_path: Path, pairs: Any, outputs: Any, theirs: Any, compare: Any
) -> None:
    one = write_adapter(tmp_path / "a.safetensors", dict(pairs(1)))
    two = write_diffusers(tmp_path / "b.safetensors", pairs(2))
    mine = outputs(Adapter(path=str(one), scale=0.8), Adapter(path=str(two), scale=-0.3))
    assert compare(mine, theirs([one, two], [0.8, -0.3])) == 0.0
    assert compare(mine, theirs([one, two], [0.8, 0.3])) > 1e-3, "the control: weights count"


@pytest.mark.parametrize("kind", ["comfy", "kohya", "diffusers", "peft"])
def test_files_of_one_adapter_are_one_adapter(
    kind: str, tmp_path: Path, transformer: Any, pairs: Any, outputs: Any, theirs: Any, compare: Any
) -> None:
    layers = pairs(3)
    plain = write_adapter(tmp_path / "plain.safetensors", dict(layers), alpha=ALPHA)
    file = {
        "comfy": lambda: write_comfy(tmp_path / "comfy.safetensors", layers),
        "kohya": lambda: write_kohya(tmp_path / "kohya.safetensors", layers),
        "diffusers": lambda: write_diffusers(tmp_path / "diffusers.safetensors", layers),
        "peft": lambda: write_peft(tmp_path / "peft", transformer, layers),
    }[kind]()
    mine = outputs(Adapter(path=str(file)))
    assert compare(mine, outputs(Adapter(path=str(plain)))) == 0.0
    if kind != "peft":  # whose names diffusers' pipeline does not read
        assert compare(mine, theirs([file], [1.0])) == 0.0


def test_an_adapter_equals_merged_weights(
    tmp_path: Path, pairs: Any, outputs: Any, transformer: Any, compare: Any
) -> None:
    """Measured: 2.8e-6 in the latent and 1.2e-7 in the video; merging rounds each weight, adding each output."""
    layers = pairs(4, blocks=False)
    file = write_adapter(tmp_path / "a.safetensors", dict(layers))
    added = outputs(Adapter(path=str(file), scale=0.5))
    weights = {name: transformer.get_submodule(name).weight for name in layers}
    before = {name: weight.clone() for name, weight in weights.items()}
    for name, (down, up) in layers.items():
        weights[name].add_(0.5 * (up.flatten(1) @ down.flatten(1)).view_as(weights[name]))
    merged = outputs()
    for name, weight in weights.items():
        weight.copy_(before[name])
    assert 0.0 < compare(added, merged) < 1e-5
    assert compare(added, outputs()) > 1e-2


def test_the_time_layers_of_the_official_names_bind(
    tmp_path: Path, transformer: Any, pairs: Any, outputs: Any, compare: Any
) -> None:
    heads = {
        "condition_embedder.time_embedder.linear_1": "time_embedding.0",
        "condition_embedder.time_embedder.linear_2": "time_embedding.2",
        "condition_embedder.text_embedder.linear_1": "text_embedding.0",
        "condition_embedder.text_embedder.linear_2": "text_embedding.2",
        "condition_embedder.time_proj": "time_projection.1",
        "proj_out": "head.head",
        "patch_embedding": "patch_embedding",
    }
    layers = {name: pair for name, pair in pairs(5, blocks=False).items() if name in heads}
    assert layers.keys() == heads.keys()
    tensors: dict[str, Tensor] = {}
    for name, (down, up) in layers.items():
        tensors[f"diffusion_model.{heads[name]}.lora_down.weight"] = down
        tensors[f"diffusion_model.{heads[name]}.lora_up.weight"] = up
    save_file(tensors, tmp_path / "comfy.safetensors")
    plain = write_adapter(tmp_path / "plain.safetensors", layers)
    mine = outputs(Adapter(path=str(tmp_path / "comfy.safetensors")))
    assert compare(mine, outputs(Adapter(path=str(plain)))) == 0.0


def test_a_file_of_diffusers_without_its_metadata_counts_less(
    tmp_path: Path, pairs: Any, outputs: Any, compare: Any
) -> None:
    file = write_diffusers(tmp_path / "a.safetensors", pairs(6))
    save_file(load_file(file), tmp_path / "bare.safetensors")
    told, bare = (Adapter(path=str(tmp_path / name)) for name in ("a.safetensors", "bare.safetensors"))
    doubled = Adapter(path=bare.path, scale=ALPHA / RANK)
    assert compare(outputs(told), outputs(doubled)) == 0.0
    assert compare(outputs(told), outputs(bare)) > 1e-3


def test_a_rank_that_the_config_denies_is_refused(
    tmp_path: Path, transformer: Any, pairs: Any, outputs: Any
) -> None:
    folder = write_peft(tmp_path / "peft", transformer, pairs(7))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"r": 2 * RANK}))
    with pytest.raises(FvError, match="contradicts itself") as refused:
        outputs(Adapter(path=str(folder)))
    assert refused.value.code == "FV322"
