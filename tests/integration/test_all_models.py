"""All models in one engine: every kind of loop takes steps beside every other, and nobody's bits change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fv_core import Engine, Request
from fv_core.cache import CacheContent, CacheKey, CacheRef
from fv_core.loop import WorkKind
from fv_core.loop.rng import seed_state, torch_normal
from fv_core.media import Clip
from fv_core.plugins import find_card
from fv_core.program import InputSpec
from fv_core.request import EVERYTHING, Modality, ModalPart, OutputSpec, Size, TaskType
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.job import advance
from fv_core.runtime.records.samples import sample
from fv_core.runtime.scope import RequestScope

MODELS = ("bagel/tiny", "cosmos3/tiny", "ltx2/tiny", "wan-causal/tiny", "wan21/micro")
ALL = OutputSpec(keep=(EVERYTHING,))


def picture(side: int) -> ModalPart:
    return sample(InputSpec(modality=Modality.IMAGE), Size(side, side), 1)


REQUESTS = {
    "bagel, text to image": Request(model="bagel/tiny", prompt="a red circle", seed=3, size=(64, 64), steps=4),
    "bagel, thinks first": Request(
        model="bagel/tiny", prompt="a red circle", seed=4, size=(64, 64), steps=3,
        params={"think": True, "max_tokens": 6},
    ),
    "bagel, a question": Request(
        model="bagel/tiny", task=TaskType.QA, prompt="what is it?", seed=5, inputs=(picture(64),),
        params={"max_tokens": 6},
    ),
    "cosmos3, text to video": Request(
        model="cosmos3/tiny", prompt="a red circle moving", seed=6, size=(64, 32), frames=5, steps=3
    ),
    "cosmos3, from an image": Request(
        model="cosmos3/tiny", task=TaskType.I2V, prompt="a red circle", seed=7, size=(32, 32), frames=5, steps=3,
        inputs=(picture(32),),
    ),
    "ltx2, with sound": Request(model="ltx2/tiny", prompt="a red circle moving", seed=8, frames=9),
    "wan-causal, streamed": Request(model="wan-causal/tiny", prompt="a red circle moving", seed=9, frames=21),
    "wan21, guided": Request(
        model="wan21/micro", prompt="a red circle moving", seed=10, size=(32, 16), frames=5, steps=3
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Engine(MODELS, device="cpu", reuse=False) as engine:
        yield engine
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def alone(engine: Engine) -> dict[str, Clip]:
    return {name: engine.run(kept(request)) for name, request in REQUESTS.items()}


def kept(request: Request) -> Request:
    return replace(request, output=ALL)


def differing(one: Clip, other: Clip) -> list[str]:
    """Names of what is not equal bit for bit."""
    assert one.tensors.keys() == other.tensors.keys()
    wrong = [name for name, tensor in one.tensors.items() if not torch.equal(tensor, other.tensors[name])]
    wrong += [] if np.array_equal(one.frames, other.frames) else ["frames"]
    if one.audio is not None and other.audio is not None:
        wrong += [] if np.array_equal(one.audio.samples, other.audio.samples) else ["audio"]
    return wrong + ([] if one.text == other.text else ["text"])


def test_every_tiny_model_and_every_kind_of_loop_takes_part(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: set[WorkKind] = set()
    seen = Work.__init__

    def look(self: Work, **fields: object) -> None:
        seen(self, **fields)  # type: ignore[arg-type]
        kinds.add(self.plan.kind)

    monkeypatch.setattr(Work, "__init__", look)
    for request in REQUESTS.values():
        engine.run(request)
    assert {request.model for request in REQUESTS.values()} == set(MODELS)
    assert kinds == set(WorkKind)


@pytest.mark.parametrize("turned", [False, True], ids=["in order", "turned"])
def test_requests_of_all_models_in_turn_equal_their_solo_runs(
    engine: Engine, alone: dict[str, Clip], turned: bool
) -> None:
    names = list(REQUESTS)[:: -1 if turned else 1]
    results = engine.run_many([kept(REQUESTS[name]) for name in names])
    for name, result in zip(names, results, strict=True):
        assert result.clip is not None, result.error
        assert differing(result.clip, alone[name]) == [], name
    assert set(vars_of(engine)) == {0}


def test_neighbours_that_are_cancelled_change_nothing(engine: Engine, alone: dict[str, Clip]) -> None:
    jobs = {name: engine.start(kept(request)) for name, request in REQUESTS.items()}
    steps = 0
    while going := [job for job in jobs.values() if not job.done]:
        advance(going)
        steps += 1
        if steps == 3:
            for name in ("bagel, thinks first", "ltx2, with sound", "wan-causal, streamed"):
                jobs[name].run.cancel.cancel()
    for name, job in jobs.items():
        if job.error is None:
            assert differing(engine.clip(job), alone[name]) == [], name
        else:
            assert job.error.code == "FV510"
        job.close()
    assert sum(job.error is not None for job in jobs.values()) == 3
    assert set(vars_of(engine)) == {0}


def test_models_that_slept_or_were_unloaded_compute_the_same_bits(
    engine: Engine, alone: dict[str, Clip], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path))
    for leave in (engine.sleep, engine.unload):
        for model in MODELS:
            assert engine.instance(model).resident_bytes() > 0
            leave(model)
            assert engine.instance(model).resident_bytes() == 0
        for name, request in REQUESTS.items():
            assert differing(engine.run(kept(request)), alone[name]) == [], name


def test_models_that_do_not_fit_together_make_room_for_each_other(alone: dict[str, Clip]) -> None:
    with Engine(MODELS, device="cpu") as measured:
        peaks = dict.fromkeys(MODELS, 0)
        for request in REQUESTS.values():
            assert request.model is not None
            peaks[request.model] = max(peaks[request.model], measured.plan(request).peak_bytes)
    room = max(peaks.values()) * 5 // 4  # buffers are in no card
    assert sum(peaks.values()) > 2 * room
    with Engine(MODELS, device="cpu", memory=room) as engine:
        results = engine.run_many([kept(request) for request in REQUESTS.values()])
        for (name, clip), result in zip(alone.items(), results, strict=True):
            assert result.clip is not None, result.error
            assert differing(result.clip, clip) == [], name
        assert sum(engine.instance(model).resident_bytes() for model in MODELS) <= room


def test_components_that_move_for_each_other_compute_the_same_bits(
    alone: dict[str, Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offload, which the CPU has no use for: here every move is into new memory."""
    moves: list[str] = []

    def move(module: nn.Module, device: object) -> nn.Module:
        moves.append(str(device))
        module._apply(torch.clone)
        return module

    monkeypatch.setattr("fv_core.runtime.intake.checked_offload", lambda offload, device: offload)
    with Engine(MODELS, device="cpu", offload="component") as engine:
        for name, request in REQUESTS.items():
            with monkeypatch.context() as patch:
                patch.setattr(nn.Module, "to", move)
                clip = engine.run(kept(request))
            assert differing(clip, alone[name]) == [], name
    assert len(moves) > 2 * len(MODELS)


def test_what_comes_back_is_what_the_task_yields(alone: dict[str, Clip]) -> None:
    assert alone["bagel, a question"].artifacts == ("text",)
    assert alone["bagel, thinks first"].artifacts == ("video", "text")
    assert alone["ltx2, with sound"].artifacts == ("video", "audio")
    assert alone["wan-causal, streamed"].artifacts == ("video",)
    assert len(alone["bagel, text to image"].frames) == 1


def test_another_seed_changes_every_model(engine: Engine, alone: dict[str, Clip]) -> None:
    for name, request in REQUESTS.items():
        if request.task is TaskType.QA:
            continue  # greedy: no seed
        other = engine.run(kept(replace(request, seed=99)))
        assert differing(other, alone[name]) != [], name


def test_every_card_is_found(engine: Engine) -> None:
    assert all(find_card(model).model_id == model for model in MODELS)


def vars_of(engine: Engine) -> tuple[int, ...]:
    held = engine.counters()
    return held.requests, held.values, held.value_bytes, held.caches, held.cache_bytes


def test_default_task_does_not_depend_on_the_order_of_a_cards_json() -> None:
    for model in MODELS:
        card = find_card(model)
        assert type(card).from_json(card.to_json()).capabilities == card.capabilities


def one_pool(patch: pytest.MonkeyPatch) -> None:
    """Caches are found by node alone: every request of a model meets those of the others."""
    everyone: dict[CacheRef, CacheContent] = {}
    append = RequestScope.append

    def read(scope: RequestScope, ref: CacheRef) -> CacheContent:
        return list(everyone[_of_nobody(ref)]) if ref.version else []

    def appended(scope: RequestScope, ref: CacheRef, content: CacheContent, key: CacheKey | None) -> CacheRef:
        following = append(scope, ref, content, key)
        everyone[_of_nobody(following)] = content
        return following

    for name, stand_in in (("read", read), ("take", read), ("append", appended)):
        patch.setattr(RequestScope, name, stand_in)


def _of_nobody(ref: CacheRef) -> CacheRef:
    return replace(ref, id=ref.id.partition("/")[2], owner="")


def one_generator(patch: pytest.MonkeyPatch) -> None:
    """Seeding and drawing go to one generator of the process, whatever state a loop carries."""
    generator = torch.Generator("cpu")

    def seeded(seed: int) -> torch.Tensor:
        return generator.manual_seed(seed).get_state()

    def drawn(
        state: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(shape, generator=generator, dtype=dtype), generator.get_state()

    stand_ins: dict[object, Callable[..., object]] = {seed_state: seeded, torch_normal: drawn}
    for name, module in list(sys.modules.items()):
        if name.startswith("fv_"):
            for attribute, value in list(vars(module).items()):
                if callable(value) and any(value is known for known in stand_ins):
                    patch.setattr(module, attribute, stand_ins[value])


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        (
            one_pool,
            ("bagel, text to image", "cosmos3, text to video", "wan-causal, streamed", "wan21, guided"),
        ),
        (one_generator, ("ltx2, with sound", "wan-causal, streamed")),
    ],
)
def test_control_state_that_requests_share_is_seen_in_every_model(
    state: Callable[[pytest.MonkeyPatch], None],
    seen: tuple[str, ...],
    engine: Engine,
    alone: dict[str, Clip],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state(monkeypatch)
    for name in seen:
        request = REQUESTS[name]
        other = replace(request, prompt="a blue square", seed=77)
        one, _ = engine.run_many([kept(request), kept(other)])
        assert one.clip is None or differing(one.clip, alone[name]), name
