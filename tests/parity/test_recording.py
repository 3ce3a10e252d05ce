"""Recordings survive their file bit for bit and in order; what is no recording is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fv_core.errors import ParityError
from fv_core.parity.recording import Recording, RecordingFacts
from fv_core.request import Environment, Numerics, ResolvedRequest, Size, TaskType

FACTS = RecordingFacts(
    source="fv",
    card_digest="0" * 64,
    request=ResolvedRequest(
        model="kit/good", task=TaskType.T2V, prompt="a ball", negative_prompt="", seed=2**64 - 1, size=Size(32, 16),
        frames=5, fps=8.0, steps=2, guidance=3.0, numerics=Numerics.REFERENCE, params={"shift": 3.0},
    ),
    environment=Environment(
        device="cpu", device_name="x", instructions="AVX2", threads=1, platform="Linux", versions={"torch": "2"}
    ),
)  # fmt: skip
TAPS = {
    "z/0/cond/out": torch.tensor([1.0, float("nan"), -0.0]),
    "a/0/out": torch.ones(2, 3, dtype=torch.bfloat16).t().contiguous(),
    "m": torch.tensor(7),
    "b": torch.zeros(0, 4),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Recording(facts=FACTS, taps=TAPS).save(tmp_path / "run.safetensors")
    return tmp_path / "run.safetensors"


def test_a_recording_comes_back_as_it_was(file: Path) -> None:
    back = Recording.load(file)
    assert back.facts == FACTS
    assert list(back.taps) == list(TAPS)
    for name, tensor in TAPS.items():
        assert back.taps[name].dtype == tensor.dtype
        assert torch.equal(back.taps[name].nan_to_num(5), tensor.nan_to_num(5))
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def pickled(file: Path) -> None:
    file.write_bytes(pickle.dumps(TAPS))


def bare(file: Path) -> None:
    save_file({"m": torch.tensor(7)}, file)


def without_a_tap(file: Path) -> None:
    with_header = Recording.load(file)
    fewer = {name: tensor for name, tensor in with_header.taps.items() if name != "m"}
    Recording(facts=FACTS, taps=fewer).save(file)
    text = file.read_bytes().replace(b'\\"z/0/cond/out\\", ', b'\\"z/0/cond/oui\\", ', 1)
    file.write_bytes(text)


def of_another_format(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"format":"1"', b'"format":"9"', 1))


def with_another_header(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"card_digest", b"card_digesy", 1))


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, truncated, pickled, bare, without_a_tap, of_another_format, with_another_header],
    ids=lambda damage: damage.__name__,
)
def test_what_is_no_recording_is_refused(damage: Callable[[Path], None], file: Path) -> None:
    damage(file)
    with pytest.raises(ParityError, match="cannot be used") as caught:
        Recording.load(file)
    assert caught.value.code == "FV605"
