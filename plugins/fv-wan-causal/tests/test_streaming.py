"""Frames come while later chunks are made, and have the bits of a decode of the whole latent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core import Engine, ModelCard, Request, derive
from fv_core.errors import Cancelled, RequestError
from fv_core.program import LoopNode
from fv_core.request import CancelScope, MediaChunk, RequestEvent, StepDone, TaskType
from fv_wan_causal.card import TINY
from fv_wan_causal.probes import probes


def one_shot() -> ModelCard:
    """The tiny card, decoding a latent that has come whole."""
    programs = {}
    for task, program in TINY.programs.items():
        nodes = tuple(
            replace(node, streams=()) if isinstance(node, LoopNode) else node for node in program.nodes
        )
        programs[task] = replace(program, nodes=nodes)
    return derive(TINY, model_id="wan-causal/one-shot", programs=programs)


@pytest.mark.parametrize("probe", [0, 2])
def test_streamed_clip_equals_the_one_decoded_whole(probe: int) -> None:
    request, whole = probes(TINY)[probe], one_shot()
    with Engine([TINY, whole], device="cpu") as engine:
        streamed = engine.run(request).frames
        assert (streamed == engine.run(replace(request, model=whole.model_id)).frames).all()


def test_whole_decode_equals_the_autoencoders_own(engine: Engine, ask: Callable[..., Request]) -> None:
    clip = engine.run(ask())
    vae: Any = engine.instance(TINY.model_id).component("vae")
    latent = clip.tensors["latent"].unsqueeze(0)
    with torch.no_grad():
        video = vae.module.decode(latent / (1.0 / vae._std) + vae._mean).sample
    theirs = (video * 0.5 + 0.5).clamp(0, 1)[0].permute(1, 2, 3, 0)
    assert torch.equal(clip.tensors["video"], theirs)


def test_frames_come_while_later_chunks_are_made(engine: Engine, ask: Callable[..., Request]) -> None:
    events: list[RequestEvent] = []
    engine.run(ask(), observer=events.append)
    shown = [index for index, event in enumerate(events) if isinstance(event, MediaChunk)]
    made = [
        index for index, event in enumerate(events) if isinstance(event, StepDone) and event.node == "rollout"
    ]
    first_chunk = made[4]  # the text, then four denoising steps
    assert first_chunk < shown[0] < made[6]
    assert shown[3] < made[-3]
    frames = [event.frames for event in events if isinstance(event, MediaChunk)]
    assert [len(one) for one in frames] == [1, *[4] * 8]


def test_clip_begins_with_the_image_or_the_clip_that_it_goes_on_from(engine: Engine) -> None:
    """The prefix is decoded from the very latent that it was encoded to."""
    for request, frames in ((probes(TINY)[2], 1), (probes(TINY)[3], 9)):
        first = engine.run(request).frames
        other = engine.run(replace(request, seed=99, prompt="another")).frames
        assert (first[:frames] == other[:frames]).all()
        assert not (first[frames:] == other[frames:]).all()


@pytest.mark.parametrize("stop", [3, 8, 14, 20])
def test_cancelled_request_gives_everything_back(
    stop: int, engine: Engine, ask: Callable[..., Request]
) -> None:
    scope, seen = CancelScope(), [0]

    def observe(event: RequestEvent) -> None:
        seen[0] += isinstance(event, StepDone)
        if seen[0] == stop:
            assert engine.counters().caches > 0
            scope.cancel()

    with pytest.raises(Cancelled):
        engine.run(ask(), cancel=scope, observer=observe)
    held = engine.counters()
    assert (held.requests, held.values, held.caches, held.cache_bytes) == (0, 0, 0, 0)
    assert seen[0] == stop


@pytest.mark.parametrize(
    ("task", "frames", "told"),
    [
        (TaskType.T2V, 13, "9 or 21"),
        (TaskType.T2V, 5, "9"),
        (TaskType.T2V, 93, "up to 81"),
        (TaskType.I2V, 9, "1 or 13"),
        (TaskType.V2V, 25, "21 or 33"),
    ],
)
def test_lengths_that_are_fvs_own_are_refused_under_reference_numerics(
    task: TaskType, frames: int, told: str, engine: Engine
) -> None:
    (request,) = [one for one in probes(TINY) if one.task is task][:1]
    with pytest.raises(RequestError, match="reference") as refused:
        engine.run(replace(request, frames=frames, numerics="reference"))  # type: ignore[arg-type]
    assert refused.value.code == "FV314"
    assert told in str(refused.value.legal)
    assert engine.instance(TINY.model_id).loaded == ()
    if frames < 93:
        assert len(engine.run(replace(request, frames=frames)).frames) == frames


def test_a_clip_longer_than_the_weights_were_made_for_runs_in_the_window(
    engine: Engine, ask: Callable[..., Request]
) -> None:
    assert len(engine.run(ask(frames=93, size=(16, 16))).frames) == 93


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"size": (64, 64)}, "FV302"),
        ({"frames": 9}, "FV303"),
    ],
)
def test_input_that_does_not_fit_the_clip_is_refused(
    change: dict[str, Any], code: str, engine: Engine
) -> None:
    with pytest.raises(RequestError) as refused:
        engine.run(replace(probes(TINY)[3], **change))
    assert refused.value.code == code
    assert engine.counters().requests == 0
