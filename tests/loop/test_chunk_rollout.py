"""The rollout as a state machine: what it asks for chunk by chunk, which cache each call reads or appends to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core.cache import ValueRef
from fv_core.card import ComponentSpec, LoopSpec, ModelCard, RecipeSpec, derive
from fv_core.errors import CardError, RequestError
from fv_core.loop import (
    CacheMode,
    CallOutput,
    ComponentCall,
    Done,
    Emission,
    LoopEnv,
    StepResult,
    WorkKind,
    WorkPlan,
)
from fv_core.loop.chunk_rollout import ChunkRollout, ChunkState
from fv_core.loop.driver import advance
from fv_core.request import Modality, Numerics, ResolvedRequest, Size, TaskType, UsedInput

SEMANTICS = "causal.renoise/v1"
SIGMAS = (1.0, 0.7)  # not a power of two, so that rounding shows
SPEC = LoopSpec(
    loop="fv_core.loop.chunk_rollout:ChunkRollout", semantics=SEMANTICS, binds={"denoiser": "dit"}
)
CARD = ModelCard(
    model_id="toy/tiny",
    family="toy",
    version="1",
    components={"dit": ComponentSpec(load="toy:dit")},
    loops={"rollout": SPEC},
    programs={},
    recipe=RecipeSpec(assumes_loop=SEMANTICS, steps=2, steps_fixed=True, sigmas=SIGMAS),
)
REQUEST = ResolvedRequest(
    model="toy/tiny", task=TaskType.T2V, prompt="p", negative_prompt="", seed=5, size=Size(32, 16), frames=21, fps=8.0,
    steps=2, guidance=1.0, numerics=Numerics.EXACT, params={},
)  # fmt: skip
ENV = LoopEnv(device=torch.device("cpu"), scope="r1/rollout", owner="r1")
COND = ValueRef(hash="cond")
INPUT = UsedInput(modality=Modality.VIDEO, path="", sha256="")


def loop_of(**params: Any) -> ChunkRollout:
    return ChunkRollout(CARD, replace(SPEC, params={"chunk": 3, **params}))


def begin(loop: ChunkRollout, request: ResolvedRequest = REQUEST, **inputs: Any) -> ChunkState:
    return loop.init(request, {"cond": COND, **inputs}, ENV)


def answer(plan: WorkPlan, dtype: torch.dtype = torch.float32) -> StepResult:
    """Random velocities, and the next version of each cache that is appended to."""
    (call,) = plan.calls
    caches = tuple(
        use.ref if use.mode is CacheMode.READ else replace(use.ref, version=use.ref.version + 1)
        for use in call.caches
    )
    tensors = {}
    if isinstance(latent := call.rows.get("latent"), Tensor):
        generator = torch.Generator("cpu").manual_seed(plan.step)
        tensors["velocity"] = torch.randn(latent.shape, generator=generator).to(dtype)
    return StepResult(outputs=(CallOutput(tensors=tensors),), caches=(caches,))


Step = tuple[WorkPlan, ChunkState, ChunkState]


def steps(loop: ChunkRollout, state: ChunkState, dtype: torch.dtype = torch.float32) -> Iterator[Step]:
    while isinstance(plan := loop.next(state), WorkPlan):
        following = advance(loop, state, answer(plan, dtype))
        yield plan, state, following
        state = following
    assert isinstance(loop.next(state), Done)


def calls(taken: list[Step]) -> list[ComponentCall]:
    return [plan.calls[0] for plan, _, _ in taken]


def test_each_chunk_is_denoised_at_every_level_and_then_committed() -> None:
    loop = loop_of()
    taken = list(steps(loop, begin(loop)))
    assert [call.op for call in calls(taken)] == ["text", *["velocity", "velocity", "commit"] * 2]
    assert loop.total(REQUEST) == len(taken) == 7
    assert [(plan.kind, plan.step, plan.total) for plan, _, _ in taken] == [
        (WorkKind.CHUNK_ROLLOUT, step, 7) for step in range(7)
    ]
    assert [plan.sigma for plan, _, _ in taken] == [None, *[1.0, 0.7, None] * 2]
    assert [call.rows.get("timestep") for call in calls(taken)] == [None, *[1000.0, 700.0, 0.0] * 2]


def test_text_is_asked_for_once_and_read_by_every_chunk() -> None:
    loop = loop_of()
    first, *others = calls(list(steps(loop, begin(loop))))
    assert first.rows == {"text": COND}
    assert [(use.ref.pool, use.ref.version, use.mode) for use in first.caches] == [
        ("text_kv", 0, CacheMode.APPEND)
    ]
    assert {(call.caches[1].ref.version, call.caches[1].mode) for call in others} == {(1, CacheMode.READ)}
    assert all("text" not in call.rows for call in others)


def test_denoising_reads_the_window_and_only_a_finished_chunk_appends_to_it() -> None:
    loop = loop_of()
    _, *others = calls(list(steps(loop, begin(loop))))
    assert [
        (call.caches[0].ref.pool, call.caches[0].ref.version, call.caches[0].mode) for call in others
    ] == [
        ("slab_kv", version, mode)
        for version in (0, 1)
        for mode in (CacheMode.READ, CacheMode.READ, CacheMode.APPEND)
    ]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, [(0, 0, 0), (3, 0, 3), (6, 0, 6), (9, 0, 9)]),
        ({"window": 6}, [(0, 0, 3), (3, 0, 3), (6, 0, 3), (9, 0, 3)]),
        ({"window": 7, "sink": 1}, [(0, 1, 3), (3, 1, 3), (6, 1, 3), (9, 1, 3)]),
        ({"window": 6, "sink": 3}, [(0, 3, 0), (3, 3, 0), (6, 3, 0), (9, 3, 0)]),
        ({"window": 7, "first_frame": True}, [(0, 0, 6), (1, 0, 4), (4, 0, 4), (7, 0, 4), (10, 0, 5)]),
    ],
)
def test_chunks_attend_the_sink_and_what_the_window_has_room_for(
    params: dict[str, Any], expected: list[tuple[int, int, int]]
) -> None:
    loop = loop_of(**params)
    taken = calls(list(steps(loop, begin(loop, replace(REQUEST, frames=45)))))[1:]
    assert [places(call) for call in taken[::3]] == expected
    assert [places(call) for call in taken[2::3]] == expected
    assert not any(call.static for call in taken)


def places(call: ComponentCall) -> tuple[Any, ...]:
    return tuple(call.rows[name] for name in ("start", "sink", "recent"))


def test_velocity_becomes_data_in_fp64_and_is_renoised_at_the_next_level() -> None:
    loop = loop_of()
    generator = torch.Generator("cpu").manual_seed(5)
    noise = torch.randn(6, 16, 2, 4, generator=generator).transpose(0, 1)
    _, first, second, third, *_ = steps(loop, begin(loop))
    assert torch.equal(first[1].latent, noise[:, :3])
    velocity = answer(first[0]).outputs[0].tensors["velocity"]
    x0 = (noise[:, :3].double() - velocity.double()).float()
    fresh = torch.randn(3, 16, 2, 4, generator=generator).transpose(0, 1)
    assert torch.equal(second[1].latent, (1 - torch.tensor(0.7)) * x0 + torch.tensor(0.7) * fresh)
    velocity = answer(second[0]).outputs[0].tensors["velocity"]
    assert torch.equal(third[1].latent, (second[1].latent.double() - 0.7 * velocity.double()).float())
    assert torch.equal(third[1].rng, second[1].rng)  # the last level draws nothing


def test_noise_follows_the_models_precision_and_is_mixed_in_fp32() -> None:
    loop = loop_of()
    _, first, second, *_ = steps(loop, begin(loop), torch.bfloat16)
    velocity = answer(first[0], torch.bfloat16).outputs[0].tensors["velocity"]
    x0 = (first[1].latent.double() - velocity.double()).bfloat16()
    generator = torch.Generator("cpu").manual_seed(5)
    torch.randn(6, 16, 2, 4, generator=generator)
    fresh = torch.randn(3, 16, 2, 4, generator=generator).transpose(0, 1).bfloat16()
    assert second[1].latent.dtype == torch.bfloat16
    assert torch.equal(second[1].latent, (0.3 * x0.float() + 0.7 * fresh.float()).bfloat16())


def test_a_chunk_is_emitted_once_as_soon_as_it_is_clean() -> None:
    loop = loop_of()
    taken = list(steps(loop, begin(loop)))
    emitted = [loop.emit(old, new) for _, old, new in taken]
    assert [[one.index for one in each] for each in emitted] == [[], [], [0], [], [], [1], []]
    assert {one.output for each in emitted for one in each} == {"latent"}
    assert torch.equal(whole(emitted), latent_of(loop, taken[-1][2]))


def whole(emitted: list[tuple[Emission, ...]]) -> Tensor:
    return torch.cat([one.tensor for each in emitted for one in each], dim=1)


def latent_of(loop: ChunkRollout, state: ChunkState) -> Tensor:
    latent = loop.finalize(state).slots["latent"]
    assert isinstance(latent, Tensor)
    return latent


def test_given_frames_are_committed_at_zero_noise_emitted_and_part_of_the_latent() -> None:
    loop = loop_of(context_noise=7.0)
    prefix = torch.arange(16 * 3 * 8, dtype=torch.float32).view(16, 3, 2, 4)
    request = replace(REQUEST, inputs=(INPUT,))
    taken = list(steps(loop, begin(loop, request, prefix=prefix)))
    assert [call.op for call in calls(taken)] == ["text", "commit", "velocity", "velocity", "commit"]
    assert [call.rows.get("timestep") for call in calls(taken)] == [None, 0.0, 1000.0, 700.0, 7.0]
    assert [call.rows.get("times") for call in calls(taken)] == [None, 1, 3, 3, 3]
    assert taken[0][0].total == len(taken) <= loop.total(request)
    emitted = [loop.emit(old, new) for _, old, new in taken]
    assert [[one.index for one in each] for each in emitted] == [[0], [], [], [1], []]
    latent = latent_of(loop, taken[-1][2])
    assert torch.equal(latent[:, :3], prefix)
    assert torch.equal(whole(emitted), latent)
    noise = torch.randn(3, 16, 2, 4, generator=torch.Generator("cpu").manual_seed(5)).transpose(0, 1)
    assert torch.equal(taken[2][1].latent, noise)  # none is drawn for what is given


@pytest.mark.parametrize(
    ("given", "numerics", "refused"),
    [
        (6, Numerics.EXACT, "leaves nothing"),
        (7, Numerics.EXACT, "leaves nothing"),
        (2, Numerics.REFERENCE, "ends within"),
        (2, Numerics.EXACT, ""),
        (3, Numerics.REFERENCE, ""),
    ],
)
def test_given_frames_leave_something_to_make_and_are_whole_chunks_for_the_reference(
    given: int, numerics: Numerics, refused: str
) -> None:
    loop, request = loop_of(), replace(REQUEST, numerics=numerics, inputs=(INPUT,))
    prefix = torch.zeros(16, given, 2, 4)
    if refused:
        with pytest.raises(RequestError, match=refused) as error:
            begin(loop, request, prefix=prefix)
        assert error.value.code == "FV303"
        return
    taken = list(steps(loop, begin(loop, request, prefix=prefix)))
    assert len(taken) <= loop.total(request)


def test_lengths_of_fvs_own_are_refused_under_reference_numerics_alone() -> None:
    loop = loop_of(trained=6)
    for frames in (17, 33):
        request = replace(REQUEST, frames=frames)
        assert loop.total(request) == len(list(steps(loop, begin(loop, request))))
        with pytest.raises(RequestError) as refused:
            loop.total(replace(request, numerics=Numerics.REFERENCE))
        assert refused.value.code == "FV314"
    assert loop.total(replace(REQUEST, numerics=Numerics.REFERENCE)) == 7


def test_a_step_can_be_repeated_and_changes_nothing_it_was_given() -> None:
    loop = loop_of()
    for plan, state, following in list(steps(loop, begin(loop))):
        kept, again = state.latent.clone(), advance(loop, state, answer(plan))
        assert torch.equal(again.latent, following.latent)
        assert torch.equal(again.rng, following.rng)
        assert torch.equal(state.latent, kept)


def test_prediction_is_differentiable() -> None:
    loop = loop_of()
    _, (plan, state, _), *_ = steps(loop, begin(loop))
    result = answer(plan)
    velocity = result.outputs[0].tensors["velocity"].requires_grad_()
    prediction = loop.predict(state, result)
    assert prediction.x0 is not None
    prediction.x0.sum().backward()
    assert velocity.grad is not None


@pytest.mark.parametrize(
    "params",
    [
        {"chunk": 0},
        {"sink": 1},
        {"sink": -1, "window": 6},
        {"window": 5, "sink": 3},
        {"context_noise": -1.0},
        {"chunks": 3},
    ],
)
def test_parameters_that_make_no_sense_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(CardError) as refused:
        loop_of(**params)
    assert refused.value.code == "FV206"


def test_a_recipe_without_noise_levels_is_refused() -> None:
    card = derive(CARD, recipe={"sigmas": ()})
    with pytest.raises(CardError, match=r"recipe\.sigmas") as refused:
        ChunkRollout(card, replace(SPEC, params={"chunk": 3}))
    assert refused.value.code == "FV206"


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        ({"cond": torch.zeros(4, 8)}, "by reference"),
        ({"prefix": COND}, "is a tensor"),
        ({"prefix": torch.zeros(16, 3, 4, 4)}, "grid"),
    ],
)
def test_inputs_of_another_kind_are_refused(inputs: dict[str, Any], match: str) -> None:
    with pytest.raises(TypeError, match=match):
        begin(loop_of(), **inputs) if "cond" not in inputs else loop_of().init(REQUEST, inputs, ENV)
