"""Records of interceptors: what could never run is told."""

from __future__ import annotations

from typing import Any

import pytest

from fv_core.extend import InterceptorSpec

SOUND: dict[str, Any] = {
    "id": "toy/skip",
    "loop_kinds": ("flow_denoise", "vae_decode", "component"),
    "distribution_altering": True,
    "params": "toy:Params",
    "factory": "toy:Skip",
}


def test_sound_record_has_no_faults() -> None:
    assert InterceptorSpec(**SOUND).faults() == ()


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        ({"loop_kinds": ("flow_denoise", "diffusion")}, "diffusion"),
        ({"loop_kinds": ()}, "no loop kinds"),
        ({"level": "block"}, "block"),
    ],
)
def test_record_that_could_never_run_is_told(delta: dict[str, Any], words: str) -> None:
    (fault,) = InterceptorSpec(**{**SOUND, **delta}).faults()
    assert words in fault
