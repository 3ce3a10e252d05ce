"""The environment hash moves with everything that can change bits, and a difference is told by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fv_core.plugins import find_card
from fv_core.request import Environment
from fv_core.runtime import environment as module
from fv_core.runtime.environment import differences, environment, environment_hash

CPU = torch.device("cpu")


def here() -> Environment:
    return environment(find_card("wan21/micro"), CPU)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    mkldnn: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, also = torch.get_float32_matmul_precision(), mkldnn.fp32_precision
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        mkldnn.fp32_precision = also  # which was "none", and is "ieee" after


@contextmanager
def one_thread_more() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def switched(of: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(of, name)
    setattr(of, name, value)
    try:
        yield
    finally:
        setattr(of, name, before)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS: dict[str, Any] = {
    "float32 matmul precision": lambda: matmul_precision("medium"),
    "attention kernels": lambda: sdpa_kernel([SDPBackend.MATH]),
    "onednn precision": lambda: switched(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),  # type: ignore[attr-defined]
    "cudnn": lambda: switched(torch.backends.cudnn, "benchmark", True),
    "reduced sums": lambda: switched(
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False
    ),
    "deterministic": deterministic,
    "default dtype": default_dtype,
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "threads": one_thread_more,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_torch_flips_the_hash_and_is_told_by_name(name: str) -> None:
    before = here()
    with SETTINGS[name]():
        changed = here()
    assert environment_hash(changed) != environment_hash(before)
    differing = differences(before, changed)
    names = [*here().settings, "threads"]
    told = {one for one in names if any(phrase.startswith(f"{one} ") for phrase in differing)}
    entangled = {"float32 matmul precision", "onednn precision"}  # torch sets and reads the one by the other
    assert told == {name} or name in told <= entangled
    assert environment_hash(here()) == environment_hash(before)


def test_each_choice_of_an_attention_kernel_is_told_apart() -> None:
    kernels = [
        SDPBackend.MATH,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
    ]
    hashes = set()
    for choice in [None, *kernels]:
        with nullcontext() if choice is None else sdpa_kernel([choice]):
            hashes.add(environment_hash(here()))
    assert len(hashes) == 5


def test_the_type_of_an_autocast_is_told_apart() -> None:
    hashes = set()
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            hashes.add(environment_hash(here()))
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("text", "processor"),
    [
        ("processor\t: 0\nmodel name\t: Swift 9 @ 3 GHz\nmodel name\t: other\n", "Swift 9 @ 3 GHz"),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", "by platform"),
        (None, "by platform"),
    ],
)
def test_the_model_of_the_processor_flips_the_hash(
    text: str | None, processor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = here()
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(module, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "by platform")
    monkeypatch.setattr(module, "_processor", module._processor.__wrapped__)
    assert here().processor == processor
    assert environment_hash(here()) != environment_hash(before)
    assert any(told.startswith("processor ") for told in differences(before, here()))


def test_what_was_written_without_the_later_fields_differs_where_they_are_known() -> None:
    earlier = replace(here(), processor="", settings={})
    told = differences(earlier, here())
    assert any(one.startswith("autocast absent then, off now") for one in told)
    assert environment_hash(earlier) != environment_hash(here())


def test_mixed_switches_of_torch_are_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed() -> str:
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr("torch.get_float32_matmul_precision", mixed)
    assert here().settings["float32 matmul precision"].startswith("cuda ")
