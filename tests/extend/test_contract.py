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
        ({"loop_kinds": "flow_denoise"}, "loop_kinds 'flow_denoise' is not of its declared type"),
        ({"loop_kinds": ["flow_denoise"]}, "expected a tuple"),
        ({"level": "block"}, "block"),
        ({"id": 5}, "id 5 is not of its declared type"),
        ({"params": 3}, "params 3 is not of its declared type"),
        ({"distribution_altering": "no"}, "distribution_altering 'no' is not of its declared type"),
        *(
            ({"id": ident}, "id is not")
            for ident in ("", "toy", "toy/../../a b", "Toy/x", "toy/x\n", "toy/a/b")
        ),
    ],
)
def test_record_that_could_never_run_is_told(delta: dict[str, Any], words: str) -> None:
    (fault,) = InterceptorSpec(**{**SOUND, **delta}).faults()
    assert words in fault


def test_all_faults_of_one_kind_are_told() -> None:
    faults = InterceptorSpec(**{**SOUND, "id": 5, "params": 3, "loop_kinds": "flow_denoise"}).faults()
    assert [fault.split()[0] for fault in faults] == ["id", "loop_kinds", "params"]
