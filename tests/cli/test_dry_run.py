"""`--dry-run` tells values, weights and memory of a run, and loads nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core.card import ModelCard
from fv_core.plugins import find_card
from fv_core.runtime import estimate
from fv_core.runtime.instance import ModelInstance
from fv_core.testing.adapters import write_adapter

Fv = Callable[..., Any]


@pytest.fixture(autouse=True)
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(instance: ModelInstance, component: str) -> None:
        raise AssertionError(f"{component} was loaded")

    monkeypatch.setattr(ModelInstance, "component", refuse)
    monkeypatch.setattr("fv_core.runtime.residency.free_bytes", lambda device: 10**15)


def test_a_plan_needs_no_weights(fv: Fv, work: Path) -> None:
    told = fv("generate", "a cat", "--model", "wan21/t2v-1.3b", "--device", "cpu", "--dry-run", "--json")
    plan = told.json
    weights = {"text": 5_680_910_336 * 4, "transformer": 1_418_996_800 * 4 + 2**20, "vae": 126_892_531 * 4}
    working = plan["working_bytes"]
    assert (told.code, told.err) == (0, "")
    assert plan["weight_bytes"] == weights
    assert plan["peak_bytes"] == sum(weights.values()) + max(working.values())
    assert plan["peak_bytes_offloaded"] == max(weights[name] + working[name] for name in weights)
    assert plan["free_bytes"] > 0
    assert (plan["adapter_bytes"], plan["max_batch"]) == (0, 16)
    assert (plan["device"], plan["dtype"], plan["steps"]) == ("cpu", "float32", 50 + 2 + 22)
    assert plan["weights"] is None
    assert "`fv weights pull wan21/t2v-1.3b`" in plan["weights_missing"]
    assert plan["request"]["size"] == {"width": 832, "height": 480}
    assert list(work.iterdir()) == []


def test_a_plan_is_text(fv: Fv, work: Path) -> None:
    flags = ("--seed", "7", "--n", "3", "--set", "shift=5", "--device", "cpu", "--dtype", "bfloat16")
    told = fv("generate", "a cat", "--model", "wan21/t2v-1.3b", "--dry-run", "-o", "out.mp4", *flags)
    assert (told.code, told.err) == (0, "")
    for line in (
        "wan21/t2v-1.3b on cpu, bfloat16, numerics exact",
        "  prompt    'a cat'",
        "  clip      832x480, 81 frames at 16 fps (5.06 s)",
        "  steps     50 (74 with encoding and decoding)",
        "  seed      7, 8, 9",
        "  shift     5.0",
        "  output    out-1.mp4 and 2 more",
    ):
        assert f"{line}\n" in told.out
    rows = [line.split() for line in told.out.splitlines()]
    assert ["text", "10.6", "GiB"] in [row[:3] for row in rows]
    assert ["vae", "484.1", "MiB"] in [row[:3] for row in rows]
    assert any(line.startswith("peak, all resident ") for line in told.out.splitlines())
    assert any(line.startswith("peak, one at a time ") for line in told.out.splitlines())
    assert any(line.startswith("free on cpu ") for line in told.out.splitlines())
    assert list(work.iterdir()) == []


def test_a_plan_tells_how_many_rows_a_forward_may_have(fv: Fv) -> None:
    flags = ("generate", "a cat", "--device", "cpu", "--dry-run", "--max-batch", "3")
    assert fv(*flags, "--json").json["max_batch"] == 3
    assert "rows of a forward             3\n" in fv(*flags).out


def test_a_plan_counts_adapters(fv: Fv, work: Path) -> None:
    layers = {"blocks.0.attn1.to_q": (torch.ones(3, 32), torch.ones(32, 3))}
    write_adapter(work / "a.safetensors", layers)
    plain = fv("generate", "a cat", "--device", "cpu", "--dry-run", "--json").json
    flags = ("generate", "a cat", "--device", "cpu", "--dry-run", "--lora", "a.safetensors")
    plan = fv(*flags, "--json").json
    assert plan["adapter_bytes"] == 2 * 3 * 32 * 4
    for peak in ("peak_bytes", "peak_bytes_offloaded"):
        assert plan[peak] == plain[peak] + plan["adapter_bytes"]
    assert "loras                     768 B\n" in fv(*flags).out


def test_a_plan_says_what_does_not_fit(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("generate", "a cat", "--device", "cpu", "--dry-run")
    for free, marks, code in ((10**15, 0, 0), (11_800_000, 2, 4)):
        monkeypatch.setattr("fv_core.runtime.residency.free_bytes", lambda device, free=free: free)
        told = fv(*flags)
        assert (told.out.count("(does not fit)"), told.code, told.err) == (marks, code, "")
        document = fv(*flags, "--json")
        assert (document.json["fits"], document.code) == (code == 0, code)


def test_a_plan_fits_exactly_what_a_run_is_let_into(fv: Fv) -> None:
    flags = ("generate", "a cat", "--device", "cpu", "--dry-run", "--json", "--memory")
    peak = fv(*flags, "1GiB").json["peak_bytes"]
    assert [fv(*flags, size).code for size in (peak, peak - 1)] == [0, 4]


def test_a_plan_tells_memory_that_is_allowed_from_memory_that_is_free(
    fv: Fv, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("generate", "a cat", "--device", "cpu", "--dry-run", "--memory", "8GiB")
    assert "allowed on cpu          8.0 GiB\n" in fv(*flags).out
    monkeypatch.setattr("fv_core.runtime.residency.free_bytes", lambda device: 2**32)
    assert "free on cpu             4.0 GiB\n" in fv(*flags).out


def test_a_plan_of_several_clips_says_that_its_memory_is_for_one(fv: Fv) -> None:
    flags = ("generate", "a cat", "--device", "cpu", "--dry-run")
    assert "for one clip of 8" in fv(*flags, "--n", "8").out
    assert "for one clip" not in fv(*flags).out


def test_a_plan_is_refused_as_the_run_would_be(fv: Fv, work: Path) -> None:
    (work / "out.mp4").touch()
    for flags in (("--steps", "0"), ("-o", "out.mp4"), ("--weights", "absent"), ("--device", "tpu")):
        told = fv("generate", "a cat", "--dry-run", *flags)
        assert told.code in (2, 3)
        assert told.out == ""


def test_a_plan_tells_what_is_adjusted(fv: Fv) -> None:
    told = fv("generate", "a cat", "--negative", "fog", "--guidance", "1", "--device", "cpu", "--dry-run")
    assert told.err == "note: the negative prompt is not used: guidance 1 is off\n"


def test_a_plan_tells_what_auto_offload_means_here_and_refuses_what_is_impossible(fv: Fv) -> None:
    told = fv("generate", "a cat", "--device", "cpu", "--dry-run")
    assert told.out.splitlines()[-1].split()[:2] == ["offload", "none"]
    assert "needs an accelerator" in told.out
    refused = fv("generate", "a cat", "--device", "cpu", "--dry-run", "--offload", "component")
    assert (refused.code, refused.out) == (2, "")


def test_working_memory_that_the_card_does_not_state_is_told_so(
    fv: Fv, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = find_card("wan21/micro")
    silent = {name: replace(spec, activation="") for name, spec in card.components.items() if name == "vae"}
    monkeypatch.setattr(estimate, "_activations", partial(_with, estimate._activations, silent))
    told = fv("generate", "a cat", "--model", "wan21/micro", "--device", "cpu", "--dry-run")
    assert any(line.split()[0::3] == ["vae", "not"] for line in told.out.splitlines() if "stated" in line)
    assert "  without the working memory of vae, which the card does not state\n" in told.out
    plan = fv("generate", "a cat", "--model", "wan21/micro", "--device", "cpu", "--dry-run", "--json").json
    assert plan["working_bytes"]["vae"] is None
    assert plan["working_bytes"]["text"] > 0


def _with(activations: Any, changed: dict[str, Any], card: ModelCard, *rest: Any) -> Any:
    return activations(replace(card, components={**card.components, **changed}), *rest)
