"""Reads the header of a safetensors file and proves that the file is as long as its header says.

Reads no tensor and needs no torch: names, shapes and sizes of a 30 GB checkpoint are checked in milliseconds.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fv_core.errors import WeightsError

_LENGTH_BYTES: Final = 8
_METADATA: Final = "__metadata__"
_LARGEST_HEADER: Final = 100_000_000  # the format's own limit: a longer length field is garbage
_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHeader:
    """One tensor of a file: its type by the format's name, its shape, and its bytes [begin, end) after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def floating(self) -> bool:
        return self.dtype.startswith(("F", "BF"))


def read_header(path: Path) -> dict[str, TensorHeader]:
    """The tensors of a safetensors file by name.

    Raises:
        WeightsError: FV253, the header cannot be read, contradicts itself, or the file has another length.
    """
    header, data_bytes = _read(path)
    tensors = {name: _tensor(path, name, facts) for name, facts in header.items() if name != _METADATA}
    _check_length(path, tensors, data_bytes=data_bytes)
    return tensors


def read_metadata(path: Path) -> dict[str, str]:
    """What a safetensors file says beside its tensors; {} where it says nothing.

    Raises:
        WeightsError: FV253, the header cannot be read, or holds something else than texts there.
    """
    metadata = _read(path)[0].get(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise damaged(path, "the header's metadata is not an object of texts")
    return metadata


def _read(path: Path) -> tuple[dict[str, object], int]:
    """The header, and how many bytes come after it."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if size < _LENGTH_BYTES or length > min(_LARGEST_HEADER, size - _LENGTH_BYTES):
                raise damaged(path, f"{size} bytes are too few for the header that the file announces")
            header = json.loads(file.read(length))
    except OSError as error:
        raise damaged(path, f"the file cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, "the header is not JSON") from error
    if not isinstance(header, dict):
        raise damaged(path, "the header is not a JSON object")
    return header, size - _LENGTH_BYTES - length


def _tensor(path: Path, name: str, facts: object) -> TensorHeader:
    match facts:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]} if (
            dtype in _BITS and all(type(number) is int and number >= 0 for number in (*shape, begin, end))
        ):
            if (end - begin) * 8 == math.prod(shape) * _BITS[dtype]:
                return TensorHeader(dtype=dtype, shape=tuple(shape), begin=begin, end=end)
            raise damaged(path, f"tensor {name} of {dtype} {shape} cannot take {end - begin} bytes")
    raise damaged(path, f"the header's entry for tensor {name} is not legal")


def _check_length(path: Path, tensors: dict[str, TensorHeader], data_bytes: int) -> None:
    filled = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != filled:
            raise damaged(
                path, f"tensor {name} starts at byte {tensor.begin} of the data instead of {filled}"
            )
        filled = tensor.end
    if filled != data_bytes:
        kind = "truncated" if data_bytes < filled else "too long"
        raise damaged(
            path, f"the file is {kind}: its tensors take {filled} bytes, it holds {data_bytes} for them"
        )


def damaged(path: Path, rule: str) -> WeightsError:
    """FV253: the file is not what it claims to be."""
    return WeightsError(
        "FV253",
        name=str(path),
        rule=rule,
        remedy="Copy or download the file again; `fv weights verify ID` checks every file of a model.",
    )
