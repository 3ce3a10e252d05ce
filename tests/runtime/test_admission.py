"""What cannot fit is refused with the figures before anything of it is loaded; what fits the device is chosen."""

from __future__ import annotations

import pytest
import torch

from fv_core import Engine, FvError, Request
from fv_core.card import ModelCard, derive
from fv_core.errors import RequestError
from fv_core.plugins import find_card
from fv_core.runtime import residency
from fv_core.runtime.device import free_bytes, pick_device, pick_dtype
from fv_wan21.card import MICRO, T2V_1_3B

REQUEST = Request(prompt="a red circle", seed=1)


@pytest.fixture
def card() -> ModelCard:
    return find_card("wan21/micro")


def test_too_large_is_refused_with_the_figures(card: ModelCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "free_bytes", lambda device: 1000)
    with Engine([card]) as engine:
        with pytest.raises(FvError) as caught:
            engine.run(REQUEST)
        assert caught.value.code == "FV401" and caught.value.entry.exit_code == 4
        assert (
            "64x64, 17 frames" in caught.value.message and "1000 bytes are available" in caught.value.message
        )
        assert engine.instance("wan21/micro").loaded == ()
        assert engine.counters().requests == 0


def test_resident_weights_are_not_counted_again(card: ModelCard, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine([card]) as engine:
        engine.run(REQUEST)
        plan = engine.plan(REQUEST)
        weights = sum(plan.weights.values())
        monkeypatch.setattr(residency, "free_bytes", lambda device: plan.peak_bytes - weights)
        engine.run(REQUEST)


def test_plan_needs_no_weights() -> None:
    with Engine([T2V_1_3B]) as engine:  # its weights are not here, and a plan does not ask for them
        plan = engine.plan(REQUEST)
    gib = 2**30
    assert plan.steps == 2 + 50 + 22
    assert plan.weights == {
        "text": 5_680_910_336 * 4,
        "transformer": 1_418_996_800 * 4 + 2**20,  # and its rotary tables
        "vae": 126_892_531 * 4,
    }
    assert 7.0 * gib < plan.activations["vae"] < 8.0 * gib
    assert plan.peak_bytes == sum(plan.weights.values()) + max(plan.activations.values())
    assert plan.peak_bytes_offloaded == plan.weights["text"] + plan.activations["text"]
    assert plan.peak_bytes_offloaded < plan.peak_bytes


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:1", "mps:0", "CUDA", ""])
def test_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        pick_device(name)
    assert caught.value.code == "FV312"


def test_absent_accelerator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in ("cuda", "cuda:0", "mps"):
        with pytest.raises(RequestError, match="is not available"):
            pick_device(name)
    assert pick_device("auto").type == "cpu"


def test_device_beyond_the_last_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(RequestError, match="cuda:0 to cuda:1"):
        pick_device("cuda:2")
    assert str(pick_device("cuda:1")) == "cuda:1"


def test_auto_precision_is_the_cards_for_the_device() -> None:
    assert pick_dtype("auto", MICRO, torch.device("cpu")) is torch.float32
    assert pick_dtype("auto", MICRO, torch.device("cuda")) is torch.bfloat16
    fixed = derive(MICRO, precision={"legal": ("float32",)})
    with pytest.raises(RequestError) as caught:
        pick_dtype("bfloat16", fixed, torch.device("cpu"))
    assert caught.value.code == "FV313"


def test_free_memory_of_the_host_is_some() -> None:
    assert free_bytes(torch.device("cpu")) > 0


def test_what_torch_keeps_of_an_accelerator_for_itself_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 300)
    assert free_bytes(torch.device("cuda")) == 1400


@pytest.mark.parametrize("offload", ["component", "layer", ""])
def test_offload_without_an_accelerator_is_refused(offload: str) -> None:
    with pytest.raises(RequestError) as caught:
        Engine([MICRO], device="cpu", offload=offload)  # type: ignore[arg-type]
    assert caught.value.code == "FV312"
