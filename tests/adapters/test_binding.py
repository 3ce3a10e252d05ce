"""Adapters bind whole or are refused: every way in which a file can be of no use is told with what is at fault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fv_core.adapters.binding import Binding, Target, bind
from fv_core.adapters.files import find
from fv_core.card import AdapterNames
from fv_core.errors import FvError


class Block(nn.Module):
    """Two linears and a convolution, whose original names differ."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q = nn.Linear(8, 6)
        self.to_k = nn.Linear(8, 6)
        self.conv = nn.Conv2d(3, 5, kernel_size=(2, 3))
        self.grouped = nn.Conv2d(4, 4, kernel_size=1, groups=2)


NAMES = AdapterNames(prefixes=("transformer.", "diffusion_model.", "lora_unet_"), original={"to_q": "q_proj"})


def targets(**modules: nn.Module) -> dict[str, Target]:
    with torch.device("meta"):
        found = modules or {"transformer": Block()}
    return {name: Target(module=module, names=NAMES) for name, module in found.items()}


def pair(name: str, rank: int = 2, wide: tuple[int, ...] = (8,), high: int = 6) -> dict[str, Tensor]:
    up = (high, rank, *(1 for _ in wide[1:]))
    return {f"{name}.lora_A.weight": torch.ones(rank, *wide), f"{name}.lora_B.weight": torch.ones(up)}


def written(folder: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> str:
    path = folder / "lora.safetensors"
    save_file(dict(tensors), path, metadata=metadata)
    return str(path)


def bound(folder: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> Binding:
    return bind(find(written(folder, tensors, metadata)), targets())


def refusal(folder: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> FvError:
    with pytest.raises(FvError) as refused:
        bound(folder, tensors, metadata)
    assert str(folder / "lora.safetensors") in refused.value.message
    return refused.value


def test_every_prefix_and_both_names_bind(tmp_path: Path) -> None:
    spelled = [
        "to_q",
        "q_proj",
        "transformer.to_q",
        "diffusion_model.q_proj",
        "lora_unet_q_proj",
        "lora_unet_to_q",
    ]
    for name in spelled:
        (layer,) = bound(tmp_path, pair(name)).layers
        assert (layer.component, layer.layer, layer.strength.rank, layer.bytes) == (
            "transformer",
            "to_q",
            2,
            112,
        )


def test_a_convolution_binds(tmp_path: Path) -> None:
    found = bound(tmp_path, pair("transformer.conv", wide=(3, 2, 3), high=5) | pair("transformer.to_k"))
    assert found.counts() == {"transformer": 2}


def test_components_are_told_apart_by_their_prefixes(tmp_path: Path) -> None:
    text = Target(module=Block(), names=AdapterNames(prefixes=("text_encoder.",)))
    file = find(written(tmp_path, pair("transformer.to_q") | pair("text_encoder.to_q")))
    found = bind(file, targets() | {"text": text})
    assert found.counts() == {"text": 1, "transformer": 1}


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        pytest.param(
            pair("transformer.to_p") | pair("transformer.to_k"), "1 of its 2 layers are none", id="part"
        ),
        pytest.param(pair("unet.down.0"), "1 of its 1 layers are none", id="nothing"),
        pytest.param(
            pair("transformer.to_q") | pair("transformer.q_proj"), "names a layer twice", id="twice"
        ),
        pytest.param(pair("transformer.to_q", wide=(9,)), "has [rank, 8] and [6, rank]", id="in"),
        pytest.param(pair("transformer.to_q", high=7), "has [rank, 8] and [6, rank]", id="out"),
        pytest.param(pair("transformer.conv", wide=(3,), high=5), "has [rank, 3, 2, 3]", id="kernel"),
        pytest.param(pair("transformer.grouped", wide=(2, 1, 1), high=4), "in groups", id="groups"),
        pytest.param(
            pair("transformer.to_q") | {"transformer.to_q.lora_B.weight": torch.ones(6, 3)},
            "ranks differ",
            id="rank",
        ),
        pytest.param(
            {name: tensor.int() for name, tensor in pair("transformer.to_q").items()},
            "no plain numbers",
            id="whole",
        ),
    ],
)
def test_what_does_not_bind_is_refused(tensors: dict[str, Tensor], told: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, tensors)
    assert error.code == "FV323" and told in error.rule


def test_the_nearest_names_are_told(tmp_path: Path) -> None:
    assert "to_q" in refusal(tmp_path, pair("transformer.to_qq")).remedy


def test_a_name_of_two_components_is_refused(tmp_path: Path) -> None:
    file = find(written(tmp_path, pair("to_q")))
    with pytest.raises(FvError, match="is ambiguous: these names are layers of one, two"):
        bind(file, targets(one=Block(), two=Block()))


def test_a_quantised_layer_takes_no_adapter(tmp_path: Path) -> None:
    block = Block()
    block.to_q.weight = nn.Parameter(block.to_q.weight.to(torch.float8_e4m3fn), requires_grad=False)
    with pytest.raises(FvError, match=r"quantised \(torch.float8_e4m3fn\)"):
        bind(find(written(tmp_path, pair("to_q"))), targets(transformer=block))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("to_q.dora_scale", "DoRA"), ("to_q.lora_magnitude_vector", "DoRA"), ("to_q.hada_w1_a", "LoHa"),
        ("to_q.lokr_w1", "LoKr"), ("to_q.lora_mid.weight", "Tucker"), ("to_q.lora_B.bias", "a bias"),
        ("to_q.diff_b", "biases"), ("to_q.diff", "whole weights"), ("to_q.weight", "no factor of a LoRA"),
    ],
)  # fmt: skip
def test_what_is_no_plain_lora_is_refused(name: str, kind: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, pair("transformer.to_q") | {f"transformer.{name}": torch.ones(1)})
    assert error.code == "FV322" and kind in error.rule and f"transformer.{name}" in error.rule


def test_a_lone_factor_is_refused(tmp_path: Path) -> None:
    whole = pair("transformer.to_q")
    for lone in (
        dict([whole.popitem()]),
        {"transformer.to_k.alpha": torch.ones(())} | pair("transformer.to_q"),
    ):
        error = refusal(tmp_path, lone)
        assert error.code == "FV322" and "one of the two factors is missing" in error.rule


def test_a_file_of_nothing_and_of_one_layer_in_two_formats_is_refused(tmp_path: Path) -> None:
    assert "holds no tensor" in refusal(tmp_path, {}).rule
    both = pair("to_q") | {"to_q.lora_down.weight": torch.ones(2, 8)}
    assert "gives layer to_q twice" in refusal(tmp_path, both).rule


@pytest.mark.parametrize("alpha", [torch.tensor(float("nan")), torch.ones(2)])
def test_an_alpha_is_a_finite_number(alpha: Tensor, tmp_path: Path) -> None:
    assert "no finite number" in refusal(tmp_path, pair("to_q") | {"to_q.alpha": alpha}).rule


def test_alpha_is_the_tensor_s_or_the_rank(tmp_path: Path) -> None:
    told = bound(tmp_path, pair("to_q") | {"to_q.alpha": torch.tensor(6.0)})
    assert told.alpha_stated and told.layers[0].strength.scaling(0.5) == 1.5
    bare = bound(tmp_path, pair("to_q"))
    assert not bare.alpha_stated and bare.layers[0].strength.scaling(0.5) == 0.5


def metadata(**values: object) -> dict[str, str]:
    """As diffusers writes it, of a rank of two."""
    config = {"r": 2, "lora_alpha": 8, **values}
    return {
        "lora_adapter_metadata": json.dumps({f"transformer.{name}": value for name, value in config.items()})
    }


def test_patterns_of_a_config_hold_for_the_layers_they_name(tmp_path: Path) -> None:
    tensors = pair("transformer.to_q", rank=4) | pair("transformer.to_k")
    told = metadata(rank_pattern={"^to_q": 4}, alpha_pattern={"to_q": 2}, use_rslora=True)
    strengths = {one.layer: one.strength.scaling(1.0) for one in bound(tmp_path, tensors, told).layers}
    assert strengths == {"to_q": 2 / 4**0.5, "to_k": 8 / 2**0.5}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"r": 3}, "contradicts itself: layer to_q has rank 2, its config says 3"),
        ({"use_dora": True}, "use_dora, which fv does not apply"),
        ({"bias": "all"}, "with bias 'all'"),
        ({"peft_type": "LOHA"}, "config of LOHA"),
        ({"lora_alpha": "8"}, "lora_alpha is '8'"),
        ({"lora_alpha": None}, "lora_alpha is None"),
        ({"alpha_pattern": {"(.+)+q": 2}}, "no plain name"),
        ({"alpha_pattern": [1]}, "alpha_pattern is [1]"),
    ],
)
def test_a_config_that_fv_does_not_apply_is_refused(
    values: dict[str, Any], told: str, tmp_path: Path
) -> None:
    error = refusal(tmp_path, pair("transformer.to_q"), metadata(**values))
    assert error.code == "FV322" and told in error.rule


def test_a_config_tells_all_layers_and_once(tmp_path: Path) -> None:
    twice = pair("transformer.to_q") | {"transformer.to_q.alpha": torch.tensor(2.0)}
    assert "says alpha twice" in refusal(tmp_path, twice, metadata()).rule
    assert (
        "says nothing of layer diffusion_model.to_q"
        in refusal(tmp_path, pair("diffusion_model.to_q"), metadata()).rule
    )
    assert "not JSON" in refusal(tmp_path, pair("to_q"), {"lora_adapter_metadata": "{"}).rule
    assert "not a JSON object" in refusal(tmp_path, pair("to_q"), {"lora_adapter_metadata": "[]"}).rule


def test_names_of_peft_need_its_config(tmp_path: Path) -> None:
    tensors = pair("base_model.model.to_q")
    assert "adapter_config.json" in refusal(tmp_path, tensors).rule
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 6, "peft_type": "LORA"}))
    for path in (tmp_path, tmp_path / "adapter_model.safetensors"):
        assert bind(find(str(path)), targets()).layers[0].strength.scaling(1.0) == 3.0
    (tmp_path / "adapter_config.json").write_text("[]")
    with pytest.raises(FvError, match="not a JSON object"):
        bind(find(str(tmp_path)), targets())


def test_a_file_is_found_or_named(tmp_path: Path) -> None:
    with pytest.raises(FvError, match=r"FV322 .*is not a file or folder"):
        find(str(tmp_path / "absent.safetensors"))
    with pytest.raises(FvError, match=r"FV322 .*holds no adapter_model.safetensors"):
        find(str(tmp_path))


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "lora.pt"
    torch.save(pair("to_q"), path)
    with pytest.raises(FvError, match=r"FV322 .*is a pickle"):
        bind(find(str(path)), targets())


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = Path(written(tmp_path, pair("to_q")))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FvError, match=r"FV322 .*truncated"):
        bind(find(str(path)), targets())
    path.write_bytes(b"not a file of tensors")
    with pytest.raises(FvError, match=r"FV322 .*no whole safetensors file"):
        bind(find(str(path)), targets())


def test_hashes_tell_files_and_configs_apart(tmp_path: Path) -> None:
    path = Path(written(tmp_path, pair("to_q")))
    first = find(str(path)).sha256()
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert find(str(path)).sha256() != first
    save_file(pair("to_q"), tmp_path / "adapter_model.safetensors")
    hashes = set()
    for alpha in (1, 2):
        (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": alpha}))
        hashes.add(find(str(tmp_path)).sha256())
    assert len(hashes) == 2
