"""The header reader agrees with the format's own library, and whatever it is fed it raises its own error alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fv_core.errors import WeightsError
from fv_core.weights.safetensors_header import read_header

TENSORS = {"a.weight": torch.zeros(2, 3), "b": torch.zeros(5, dtype=torch.bfloat16), "c": torch.tensor(7)}
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "good.safetensors", metadata={"format": "pt"})
    return tmp_path / "good.safetensors"


def refusal(path: Path) -> WeightsError:
    with pytest.raises(WeightsError) as raised:
        read_header(path)
    assert raised.value.code == "FV253"
    assert raised.value.name == str(path)
    return raised.value


def outcome(path: Path) -> str:
    try:
        read_header(path)
    except WeightsError as error:
        return error.code
    return "read"


def test_header_equals_what_was_saved(file: Path) -> None:
    headers = read_header(file)
    assert {name: header.shape for name, header in headers.items()} == {
        "a.weight": (2, 3),
        "b": (5,),
        "c": (),
    }
    assert {name: header.dtype for name, header in headers.items()} == {
        "a.weight": "F32",
        "b": "BF16",
        "c": "I64",
    }
    assert {name: header.floating for name, header in headers.items()} == {
        "a.weight": True,
        "b": True,
        "c": False,
    }


def test_every_truncation_is_refused(file: Path) -> None:
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        refusal(file)


def test_truncated_file_tells_both_sizes(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])
    assert "truncated: its tensors take 42 bytes, it holds 39" in refusal(file).rule


def test_bytes_behind_the_last_tensor_are_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")
    assert "too long" in refusal(file).rule


def test_absent_file_and_folder_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "absent").rule
    assert "directory" in refusal(tmp_path).rule


@same_folder
@given(st.binary(max_size=64))
@example(b"\xff" * 8)
@example((2).to_bytes(8, "little") + b"[]")
@example((40_000).to_bytes(8, "little") + b"[" * 40_000)
def test_garbage_raises_nothing_but_a_weights_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(content)
    assert outcome(path) in ("read", "FV253")


@same_folder
@given(json_values | st.dictionaries(st.text(max_size=4), json_values, max_size=3), st.binary(max_size=8))
def test_wrong_header_raises_nothing_but_a_weights_error(tmp_path: Path, header: object, data: bytes) -> None:
    path = tmp_path / "wrong"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    assert outcome(path) in ("read", "FV253")


@pytest.mark.parametrize(
    ("tensor", "rule"),
    [
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "entry for tensor a is not legal"),
        ({"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}, "entry for tensor a is not legal"),
        ({"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}, "entry for tensor a is not legal"),
        ({"dtype": "F32", "shape": [1]}, "entry for tensor a is not legal"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "a of F32 [2] cannot take 4 bytes"),
        (
            {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
            "a starts at byte 4 of the data instead of 0",
        ),
    ],
)
def test_entry_that_cannot_be_is_refused(tmp_path: Path, tensor: dict[str, object], rule: str) -> None:
    text = json.dumps({"a": tensor}).encode()
    path = tmp_path / "wrong"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"00000000"[: 8 if "4 of" in rule else 4])
    assert rule in refusal(path).rule


def test_what_is_accepted_can_be_opened(file: Path) -> None:
    content = file.read_bytes()
    header_end = 8 + int.from_bytes(content[:8], "little")
    accepted = 0
    for position in range(8, header_end):
        for character in b'09{}[]",x':
            file.write_bytes(content[:position] + bytes([character]) + content[position + 1 :])
            try:
                read_header(file)
            except WeightsError:
                continue
            accepted += 1
            try:
                with safe_open(file, framework="pt") as opened:
                    list(opened.keys())
            except SafetensorError as error:
                pytest.fail(f"{file.read_bytes()[8:header_end]!r}: {error}")
    assert accepted > 0
