"""Taps: every tensor of a run under its name and in its order, and one run replayed onto another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core import Engine, OutputSpec, Request
from fv_core.errors import FvError
from fv_core.parity.taps import record
from fv_core.runtime.stores import Counters

SMALL = Request(
    prompt="a ball",
    negative_prompt="grey",
    model="kit/good",
    seed=1,
    size=(32, 16),
    frames=5,
    steps=2,
    guidance=3.0,
)
NOTHING = Counters(requests=0, values=0, value_bytes=0, caches=0, cache_bytes=0)


def test_everything_is_recorded_in_the_order_it_is_made(engine: Engine) -> None:
    recording = record(engine, SMALL)
    assert list(recording.taps) == [
        "encode/0/cond/embeds", "encode/0/embeds",
        "encode_negative/0/cond/embeds", "encode_negative/0/embeds",
        "denoise/0/cond/velocity", "denoise/0/uncond/velocity", "denoise/0/latent",
        "denoise/1/cond/velocity", "denoise/1/uncond/velocity", "denoise/1/latent",
        "decode/0/cond/latent", "decode/1/cond/frames", "decode/2/cond/frames", "decode/2/video", "video",
    ]  # fmt: skip
    assert engine.counters() == NOTHING


def test_a_request_without_guidance_has_no_taps_of_the_other_branch(engine: Engine) -> None:
    taps = record(engine, replace(SMALL, guidance=1.0)).taps
    assert "denoise/1/cond/velocity" in taps
    assert not [tap for tap in taps if "uncond" in tap or "negative" in tap]


def test_recorded_values_are_those_of_the_run_under_reference_numerics(engine: Engine) -> None:
    recording = record(engine, SMALL)
    clip = engine.run(replace(SMALL, output=OutputSpec(keep=("latent", "video"))))
    assert torch.equal(recording.taps["denoise/1/latent"], clip.tensors["latent"])
    assert torch.equal(recording.taps["video"], clip.tensors["video"])
    assert torch.equal(
        torch.cat([recording.taps[f"decode/{n}/cond/frames"] for n in (1, 2)]), clip.tensors["video"]
    )
    assert (recording.facts.request.numerics, recording.facts.request.seed) == ("reference", 1)
    assert recording.facts.card_digest == clip.used.card_digest
    assert recording.facts.environment == clip.used.environment


def test_taps_share_no_memory(engine: Engine) -> None:
    taps = record(engine, SMALL).taps.values()
    assert len({tensor.data_ptr() for tensor in taps}) == len(taps)


def test_replaying_a_run_onto_itself_changes_nothing(engine: Engine) -> None:
    taps = record(engine, SMALL).taps
    again = record(engine, SMALL, replay=taps).taps
    assert all(torch.equal(taps[name], again[name]) for name in taps)


def test_replay_calls_every_component_with_the_other_runs_inputs(engine: Engine) -> None:
    other = record(engine, replace(SMALL, seed=2, prompt="a square")).taps
    replayed = record(engine, SMALL, replay=other).taps
    own = record(engine, SMALL).taps
    assert torch.equal(replayed["encode/0/cond/embeds"], own["encode/0/cond/embeds"])
    assert not torch.equal(replayed["denoise/0/cond/velocity"], own["denoise/0/cond/velocity"])
    for tap in (
        "denoise/1/cond/velocity",
        "denoise/1/uncond/velocity",
        "decode/0/cond/latent",
        "decode/2/cond/frames",
    ):
        assert torch.equal(replayed[tap], other[tap]), tap
    assert engine.counters() == NOTHING


def test_what_fails_is_raised_and_leaves_nothing(by_hand: Any, kit: Any) -> None:
    with Engine([kit.BROKEN["Nan"]], device="cpu") as engine:
        with pytest.raises(FvError) as caught:
            record(engine, replace(SMALL, model="kit/nan", steps=6))
        assert caught.value.code == "FV501"
        assert engine.counters() == NOTHING
