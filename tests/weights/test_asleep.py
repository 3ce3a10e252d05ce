"""Weights that sleep come back as they were, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from fv_core.errors import FvError, ResourceError, WeightsError
from fv_core.weights.asleep import put_to_sleep

Places = list[Path | None]


class Ties(nn.Module):
    """A parameter tied twice, views of one storage with strides and offsets, a buffer, odd types, nothing at all."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        fused = torch.randn(6, 4, generator=generator)
        self.shared = nn.Parameter(torch.randn(5, 3, generator=generator), requires_grad=False)
        self.tied = self.shared
        self.rows = nn.Parameter(fused[2:], requires_grad=False)
        self.turned = nn.Parameter(fused.T[1:3], requires_grad=False)
        self.short = nn.Parameter(torch.randn(3, generator=generator).bfloat16(), requires_grad=False)
        self.register_buffer("table", torch.arange(9).reshape(3, 3))
        self.register_buffer("none", torch.empty(0))


def tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}


def facts(module: nn.Module) -> dict[str, Any]:
    return {
        name: (one.dtype, tuple(one.shape), one.stride(), one.storage_offset(), one.float().tolist())
        for name, one in tensors(module).items()
    }


def bytes_of(module: nn.Module) -> int:
    storages = {
        one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors(module).values()
    }
    return sum(storages.values())


@pytest.fixture(params=["host", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "asleep" / "ties.safetensors" if request.param == "file" else None


def test_what_slept_is_what_it_was(place: Path | None) -> None:
    module = Ties()
    before, identities, taken = (
        facts(module),
        {n: id(one) for n, one in tensors(module).items()},
        bytes_of(module),
    )
    asleep = put_to_sleep(module, "ties", place)
    assert bytes_of(module) == 0 and asleep.bytes == taken
    with pytest.raises(RuntimeError):
        module.shared @ torch.ones(3)
    asleep.wake()
    assert facts(module) == before
    assert {name: id(one) for name, one in tensors(module).items()} == identities
    assert bytes_of(module) == taken
    assert all(one.untyped_storage().data_ptr() % 64 == 0 for one in tensors(module).values())
    assert place is None or list(place.parent.iterdir()) == []


def test_what_was_tied_changes_together_after_waking(place: Path | None) -> None:
    module = Ties()
    put_to_sleep(module, "ties", place).wake()
    module.rows[0, 1] = 11.0
    module.tied.zero_()
    assert module.turned[0, 2] == 11.0 and module.shared.abs().sum() == 0


def test_the_file_is_plain_safetensors_and_goes_with_its_owner(tmp_path: Path) -> None:
    file, module = tmp_path / "one.safetensors", Ties()
    before = module.shared.clone()
    asleep = put_to_sleep(module, "ties", file)
    with safe_open(file, framework="pt") as stored:
        assert stored.metadata() == {"component": "ties"}
        assert torch.equal(stored.get_tensor("shared").view(torch.float32).view(5, 3), before)
    del asleep
    assert list(tmp_path.iterdir()) == []


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def renamed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"shared"', b'"chared"'))


CORRUPTIONS: dict[str, Callable[[Path], None]] = {
    "a bit": flipped,
    "cut short": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: os.truncate(path, 0),
    "another name": renamed,
    "gone": Path.unlink,
}


@pytest.mark.parametrize("how", CORRUPTIONS)
def test_what_was_stored_and_is_corrupted_is_refused_by_name(how: str, tmp_path: Path) -> None:
    file, module = tmp_path / "one.safetensors", Ties()
    asleep = put_to_sleep(module, "component vae of a/b", file)
    CORRUPTIONS[how](file)
    for _ in range(2):  # it sleeps on
        with pytest.raises(WeightsError) as caught:
            asleep.wake()
        assert caught.value.code == "FV259" and "component vae of a/b" in caught.value.message
    assert bytes_of(module) == 0


def test_corruption_of_host_memory_is_seen() -> None:
    module = Ties()
    asleep = put_to_sleep(module, "ties", None)
    asleep._store.read()[0][3] ^= 1
    with pytest.raises(WeightsError, match="FV259"):
        asleep.wake()


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "FV403"), (errno.EACCES, "FV406")])
@pytest.mark.parametrize("call", ["mkdir", "open", "fsync", "replace"])
def test_a_store_that_cannot_be_written_leaves_the_module_as_it_was(
    number: int, code: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    module = Ties()
    before = facts(module)
    with monkeypatch.context() as patch:
        patch.setattr(os if call == "fsync" else Path, call, fail)
        with pytest.raises(ResourceError) as caught:
            put_to_sleep(module, "ties", tmp_path / "asleep" / "one.safetensors")
    assert caught.value.code == code
    assert facts(module) == before
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_every_refusal_is_fvs_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FvError) as caught:
        put_to_sleep(Ties(), "ties", tmp_path / "file" / "one.safetensors")
    assert caught.value.code == "FV406"
