"""Strict loading: bit-equal to what diffusers and transformers load, and precise about every fault of a folder."""

from __future__ import annotations

import importlib
import json
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from fv_core.card import ComponentSpec
from fv_core.errors import WeightsError
from fv_core.weights.checkpoint import CheckpointContext
from fv_core.weights.footprint import bytes_of
from fv_core.weights.layout import read_shards
from fv_core.weights.seeded import fill_from_seed
from fv_core.weights.strict_load import load

# Untyped: these classes carry no usable annotations.
diffusers: Any = importlib.import_module("diffusers")
transformers: Any = importlib.import_module("transformers")

CPU = torch.device("cpu")
EMBEDDING = {"encoder.embed_tokens.weight": "shared.weight"}
TRANSFORMER = {
    "patch_size": (1, 2, 2), "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 16,
    "out_channels": 16, "text_dim": 32, "freq_dim": 256, "ffn_dim": 64, "num_layers": 2, "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 32,
}  # fmt: skip
VAE = {
    "base_dim": 3, "z_dim": 16, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1,
    "temperal_downsample": [False, True, True],
}  # fmt: skip
TEXT = {
    "vocab_size": 160, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
    "relative_attention_num_buckets": 8, "dropout_rate": 0.0, "is_gated_act": True,
    "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("sharded"), "20KB")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("whole"), "10GB")


def save(folder: Path, largest: str) -> Path:
    torch.manual_seed(0)
    transformer = diffusers.WanTransformer3DModel(**TRANSFORMER)
    text = transformers.UMT5EncoderModel(transformers.UMT5Config(**TEXT))
    transformer.save_pretrained(folder / "transformer", max_shard_size=largest)
    diffusers.AutoencoderKLWan(**VAE).save_pretrained(folder / "vae", max_shard_size=largest)
    text.save_pretrained(folder / "text_encoder", max_shard_size=largest)
    return folder


def bare(module: nn.Module) -> Any:
    """The module with its parameters on the meta device and its buffers as they are."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(parameter.to("meta")))
    return module


def context(
    folder: Path | None, subfolder: str = "", dtype: torch.dtype = torch.float32, seed: int = 0
) -> CheckpointContext:
    subfolders = (subfolder,) if subfolder else ()
    return CheckpointContext(ComponentSpec(load="absent:x", subfolders=subfolders), folder, seed, CPU, dtype)


def transformer(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    source = context(folder, "transformer", dtype)
    kept = diffusers.WanTransformer3DModel._keep_in_fp32_modules
    return source.fill(bare(diffusers.WanTransformer3DModel.from_config(source.config())), keep_fp32=kept)


def text(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    source = context(folder, "text_encoder", dtype)
    module = bare(transformers.UMT5EncoderModel(transformers.UMT5Config(**source.config())))
    return source.fill(module, keep_fp32=("wo",) if dtype is torch.float16 else (), aliases=EMBEDDING)


def tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**module.state_dict(), **dict(module.named_buffers())}


def assert_same_bits(module: nn.Module, reference: nn.Module) -> None:
    have, wanted = tensors(module), tensors(reference)
    assert have.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert have[name].dtype == tensor.dtype, name
        assert torch.equal(have[name], tensor), name


@pytest.mark.parametrize("layout", ["whole", "sharded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_transformer_equals_from_pretrained(
    layout: str, dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(layout)
    reference = diffusers.WanTransformer3DModel.from_pretrained(folder / "transformer", dtype=dtype)
    module = transformer(folder, dtype)
    assert_same_bits(module, reference)
    assert {parameter.dtype for parameter in module.parameters()} == {dtype, torch.float32}


@pytest.mark.parametrize("layout", ["whole", "sharded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_text_encoder_equals_from_pretrained(
    layout: str, dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(layout)
    reference = transformers.UMT5EncoderModel.from_pretrained(folder / "text_encoder", dtype=dtype)
    module = text(folder, dtype)
    assert_same_bits(module, reference)
    assert module.encoder.embed_tokens.weight is module.shared.weight


def test_autoencoder_equals_from_pretrained(whole: Path) -> None:
    source = context(whole, "vae")
    module = source.fill(bare(diffusers.AutoencoderKLWan.from_config(source.config())))
    assert_same_bits(module, diffusers.AutoencoderKLWan.from_pretrained(whole / "vae"))


def test_loaded_module_is_ready_for_inference(sharded: Path) -> None:
    module = transformer(sharded)
    assert not module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_loaded_memory_is_aligned_although_the_file_is_not(whole: Path) -> None:
    with safe_open(next((whole / "transformer").glob("*.safetensors")), framework="pt") as file:
        mapped = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118  not a mapping
    assert any(tensor.data_ptr() % 64 for tensor in mapped)
    assert [name for name, tensor in transformer(whole).named_parameters() if tensor.data_ptr() % 64] == []


def test_one_tensor_at_a_time_is_held_twice(sharded: Path) -> None:
    seen: list[weakref.ref[torch.Tensor]] = []

    def settle(name: str, tensor: torch.Tensor) -> torch.Tensor:
        assert [source() for source in seen if source() is not None] == []
        seen.append(weakref.ref(tensor))
        return tensor.clone()

    module = bare(diffusers.WanTransformer3DModel(**TRANSFORMER))
    load(module, read_shards(sharded / "transformer"), {}, settle)
    assert len(seen) == len(module.state_dict())


class Small(nn.Module):
    """Persistent and other buffers, an integer one among them, and a parameter that no submodule owns."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("table", torch.arange(4.0), persistent=False)


def small(folder: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    state = {**Small().state_dict(), "count": torch.tensor(9)}
    save_file(state, folder / "model.safetensors")
    return folder / "model.safetensors", state


def refusal(folder: Path, module: nn.Module | None = None) -> WeightsError:
    """What filling a small module from `folder` raises; no tensor may have been read by then."""
    module = bare(Small()) if module is None else module
    with pytest.raises(WeightsError) as raised:
        context(folder).fill(module)
    assert all(parameter.is_meta for parameter in module.parameters())
    return raised.value


def test_flat_folder_fills_a_component_without_subfolder(tmp_path: Path) -> None:
    _, state = small(tmp_path)
    module = context(tmp_path, dtype=torch.bfloat16).fill(bare(Small()), keep_fp32=("second",))
    assert {name: tensor.dtype for name, tensor in module.state_dict().items()} == {
        "first.weight": torch.bfloat16, "first.bias": torch.bfloat16, "scale": torch.bfloat16,
        "second.weight": torch.float32, "second.bias": torch.float32, "count": torch.int64,
    }  # fmt: skip
    assert torch.equal(module.first.weight, state["first.weight"].bfloat16())
    assert module.get_buffer("count").item() == 9
    assert torch.equal(module.get_buffer("table"), torch.arange(4.0))


def test_fp32_islands_are_whole_path_segments(tmp_path: Path) -> None:
    small(tmp_path)
    module = context(tmp_path, dtype=torch.bfloat16).fill(bare(Small()), keep_fp32=("fir", "bias"))
    assert module.first.weight.dtype is torch.bfloat16
    assert module.first.bias.dtype is torch.float32


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda state: state.pop("second.bias"), "1 tensors of the model are missing: second.bias"),
        (lambda state: state.update(extra=torch.ones(1)), "1 tensors are unexpected: extra"),
        (
            lambda state: state.update({"first.weight": torch.ones(4, 2)}),
            "tensor first.weight has shape [4, 2], the model has [4, 3]",
        ),
        (lambda state: state.update(count=torch.tensor(1.0)), "tensor count is F32, the model has int64"),
        (
            lambda state: state.update({f"key{i}": torch.ones(1) for i in range(9)}),
            "9 tensors are unexpected: key0, key1, key2, key3, key4 and 4 more",
        ),
    ],
)
def test_difference_is_named_before_any_tensor_is_read(
    tmp_path: Path, damage: Callable[[dict[str, torch.Tensor]], object], fault: str
) -> None:
    path, state = small(tmp_path)
    damage(state)
    save_file(state, path)
    error = refusal(tmp_path)
    assert error.code == "FV254"
    assert error.message == f"{path}: {fault}"


def test_truncated_shard_is_named_before_any_tensor_is_read(sharded: Path, tmp_path: Path) -> None:
    folder = copy(sharded / "transformer", tmp_path / "transformer")
    shard = sorted(folder.glob("*.safetensors"))[-1]
    shard.write_bytes(shard.read_bytes()[:-1])
    error = refusal(folder, bare(diffusers.WanTransformer3DModel(**TRANSFORMER)))
    assert error.code == "FV253"
    assert error.name == str(shard)
    assert "truncated" in error.rule


def test_missing_shard_is_named(sharded: Path, tmp_path: Path) -> None:
    folder = copy(sharded / "transformer", tmp_path / "transformer")
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    error = refusal(folder)
    assert error.code == "FV252"
    assert error.name == str(shard)
    assert "diffusion_pytorch_model.safetensors.index.json names it" in error.rule


@pytest.mark.parametrize(
    ("shards", "code", "fault"),
    [
        ({"scale": 1}, "FV254", "1 tensors are not in the shard that the index names: scale"),
        ({"scale": None}, "FV254", "1 tensors of the shards are not in the index: scale"),
        ({"scale": "../x.safetensors"}, "FV253", "sends scale to '../x.safetensors', which is no"),
        ({"scale": "weights.bin"}, "FV253", "sends scale to 'weights.bin', which is no"),
        ({"scale": 3}, "FV252", "the shard is missing"),
        (None, "FV253", "the index has no weight_map"),
    ],
)
def test_index_that_disagrees_is_refused(
    tmp_path: Path, shards: dict[str, int | str | None] | None, code: str, fault: str
) -> None:
    path, state = small(tmp_path)
    path.unlink()
    parts = [{name: state[name] for name in state if name != "count"}, {"count": state["count"]}]
    listing: dict[str, object] = {}
    for number, part in enumerate(parts):
        save_file(part, tmp_path / f"{number}.safetensors")
        listing |= dict.fromkeys(part, f"{number}.safetensors")
    for name, shard in (shards or {}).items():
        listing[name] = f"{shard}.safetensors" if isinstance(shard, int) else shard
    kept = {name: shard for name, shard in listing.items() if shard is not None}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": kept} if shards is not None else {}))
    error = refusal(tmp_path)
    assert error.code == code
    assert fault in error.rule


def test_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    path, state = small(tmp_path)
    save_file(state, tmp_path / "other.safetensors")
    shards = dict.fromkeys(state, path.name) | {"scale": "other.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    assert "is in model.safetensors too" in refusal(tmp_path).rule


def test_index_wins_over_a_single_file_as_in_diffusers(sharded: Path, tmp_path: Path) -> None:
    folder = copy(sharded / "transformer", tmp_path / "transformer")
    state: dict[str, torch.Tensor] = {}
    for shard in folder.glob("*.safetensors"):
        state |= load_file(shard)
    zeros = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    save_file(zeros, folder / "diffusion_pytorch_model.safetensors")
    reference = diffusers.WanTransformer3DModel.from_pretrained(folder)
    assert_same_bits(transformer(tmp_path), reference)
    assert torch.equal(reference.scale_shift_table, state["scale_shift_table"])


@pytest.mark.parametrize("name", ["diffusion_pytorch_model.bin", "model.fp16.safetensors"])
def test_only_safetensors_of_the_known_names_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    error = refusal(tmp_path)
    assert error.code == "FV252"
    assert "only safetensors is read" in error.rule
    assert f"there is {name}" in error.rule


def test_absent_folder_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path / "absent")
    assert (error.code, error.message) == ("FV252", f"{tmp_path / 'absent'}: the folder is missing")


@pytest.mark.parametrize("present", [True, False])
def test_alias_may_be_in_the_file_if_it_equals_its_target(tmp_path: Path, present: bool) -> None:
    state = {"first.weight": torch.ones(2, 2), "second.weight": torch.ones(2, 2)}
    save_file(state if present else {"first.weight": state["first.weight"]}, tmp_path / "model.safetensors")
    module = context(tmp_path).fill(bare(Tied()), aliases={"second.weight": "first.weight"})
    assert module.second.weight is module.first.weight
    assert torch.equal(module.first.weight, torch.ones(2, 2))


@pytest.mark.parametrize(
    ("alias", "fault"),
    [
        (torch.zeros(2, 2), "second.weight differs from first.weight"),
        (torch.ones(2, 3), "second.weight has shape [2, 3], the model has [2, 2]"),
    ],
)
def test_alias_that_differs_from_its_target_is_refused(
    tmp_path: Path, alias: torch.Tensor, fault: str
) -> None:
    save_file({"first.weight": torch.ones(2, 2), "second.weight": alias}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError) as raised:
        context(tmp_path).fill(bare(Tied()), aliases={"second.weight": "first.weight"})
    assert raised.value.code == "FV254"
    assert fault in raised.value.rule


def test_buffer_left_on_the_meta_device_is_refused(tmp_path: Path) -> None:
    small(tmp_path)
    module = bare(Small())
    module.table = module.table.to("meta")
    with pytest.raises(WeightsError, match="1 tensors were left without a value: table"):
        context(tmp_path).fill(module)


def test_config_comes_from_the_folder_or_the_spec(tmp_path: Path) -> None:
    spec = ComponentSpec(load="absent:x", subfolders=("dit", "other"), config={"layers": 2})
    made = CheckpointContext(spec, None, 0, CPU, torch.float32)
    assert made.config() == {"layers": 2}
    stored = CheckpointContext(spec, tmp_path, 0, CPU, torch.float32)
    (tmp_path / "dit").mkdir()
    for content, code in ((None, "FV252"), ("{", "FV253"), ("[1]", "FV253")):
        if content is not None:
            (tmp_path / "dit" / "config.json").write_text(content)
        with pytest.raises(WeightsError, match=r"dit/config\.json") as raised:
            stored.config()
        assert raised.value.code == code
    (tmp_path / "dit" / "config.json").write_text('{"width": 8}')
    assert stored.config() == {"layers": 2, "width": 8}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)


def initialise(module: Small) -> None:
    for part in (module.first, module.second):
        part.reset_parameters()
    module.scale.normal_()


def filled(seed: int, dtype: torch.dtype = torch.float32, keep: Sequence[str] = ()) -> Small:
    module: Small = bare(Small())
    return context(None, dtype=dtype, seed=seed).fill(module, keep_fp32=keep, initialise=initialise)


def test_seed_alone_decides_the_weights() -> None:
    first, again, other = filled(5), filled(5), filled(6)
    assert_same_bits(first, again)
    assert not torch.equal(first.first.weight, other.first.weight)
    assert torch.equal(first.get_buffer("table"), torch.arange(4.0))


def test_seed_leaves_the_global_generator_alone() -> None:
    module = bare(Small())
    before = torch.get_rng_state()
    context(None, seed=2**64 - 1).fill(module, initialise=initialise)
    assert torch.equal(torch.get_rng_state(), before)


def test_seed_gives_what_the_global_generator_gives_after_the_same_seed() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        expected = Small()
        with torch.no_grad():
            torch.default_generator.manual_seed(5)
            initialise(expected)
    assert torch.equal(filled(5).first.weight, expected.first.weight)
    assert torch.equal(filled(5).scale, expected.scale)


def test_threads_that_draw_meanwhile_change_nothing_and_are_not_changed() -> None:
    """Both sides take turns draw by draw, so that any shared generator would show."""
    mine, theirs = threading.Semaphore(0), threading.Semaphore(1)
    module, undisturbed = bare(Small()), torch.Generator().manual_seed(11)
    torch.manual_seed(11)
    drawn: list[torch.Tensor] = []

    def draw() -> None:
        for _ in range(3):
            theirs.acquire()
            drawn.append(torch.rand(4))
            mine.release()

    def taking_turns(module: Small) -> None:
        for part in (module.first, module.second):
            mine.acquire()
            part.reset_parameters()
            theirs.release()
        mine.acquire()
        module.scale.normal_()

    other = threading.Thread(target=draw)
    other.start()
    made = context(None, seed=5).fill(module, initialise=taking_turns)
    other.join()
    assert_same_bits(made, filled(5))
    assert torch.equal(torch.cat(drawn), torch.cat([torch.rand(4, generator=undisturbed) for _ in range(3)]))


def test_seed_gives_the_same_weights_in_every_precision() -> None:
    full, half = filled(5), filled(5, torch.bfloat16, keep=("scale",))
    assert torch.equal(half.first.weight, full.first.weight.bfloat16())
    assert torch.equal(half.scale, full.scale)
    assert half.scale.dtype is torch.float32
    assert [name for name, tensor in half.named_parameters() if tensor.data_ptr() % 64] == []


def test_parameter_that_the_seed_does_not_reach_is_named() -> None:
    with pytest.raises(WeightsError, match="1 parameters got no value from the seed: scale") as raised:
        context(None).fill(bare(Small()))
    assert raised.value.code == "FV254"


def test_seed_holds_one_parameter_at_a_time_twice() -> None:
    drawn: list[weakref.ref[nn.Parameter]] = []
    alive: list[int] = []

    def watched(module: Small) -> None:
        initialise(module)
        drawn.extend(weakref.ref(parameter) for parameter in module.parameters())

    def settle(name: str, tensor: torch.Tensor) -> torch.Tensor:
        alive.append(sum(source() is not None for source in drawn))
        return tensor.clone()

    fill_from_seed(bare(Small()), 0, watched, settle)
    assert alive == [5, 4, 3, 2, 1]


def test_seed_keeps_tied_parameters_one() -> None:
    module = context(None).fill(bare(Tied()), aliases={"second.weight": "first.weight"})
    assert module.second.weight is module.first.weight
    assert len(list(module.parameters())) == 1


def copy(source: Path, target: Path) -> Path:
    target.mkdir(parents=True)
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


class Buffered(nn.Module):
    """A buffer that files hold, one that they do not, parameters of which one stays in fp32 and one is tied."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.register_buffer("stored", torch.ones(100))
        self.register_buffer("made", torch.ones(50), persistent=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("source", ["folder", "seed"])
def test_what_is_only_checked_weighs_what_is_loaded(source: str, dtype: torch.dtype, tmp_path: Path) -> None:
    values = {name: torch.ones_like(value) for name, value in Buffered().state_dict().items()}
    save_file(values, tmp_path / "model.safetensors")
    asked = context(tmp_path if source == "folder" else None, dtype=dtype)
    aliases = {"other.weight": "one.weight"}
    checked = replace(asked, check_only=True).fill(bare(Buffered()), keep_fp32=["norm"], aliases=aliases)
    assert all(one.is_meta for one in checked.parameters()) and checked.other.weight is checked.one.weight
    loaded = asked.fill(bare(Buffered()), keep_fp32=["norm"], aliases=aliases)
    assert bytes_of(checked) == bytes_of(loaded)
    stored = (
        4 if source == "seed" else dtype.itemsize
    )  # what is made of a seed keeps the types of its buffers
    assert bytes_of(loaded) == 2 * 8 * 4 + (64 + 8) * dtype.itemsize + 100 * stored + 50 * 4
