"""The denoise loop as a state machine: what it asks for at each step, and that it never runs or changes anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core.cache import ValueRef
from fv_core.card import ComponentSpec, LoopSpec, ModelCard, RecipeSpec, SigmaRule, derive
from fv_core.loop import CallOutput, Done, LoopEnv, StepResult, WorkKind, WorkPlan
from fv_core.loop.driver import advance
from fv_core.loop.flow_denoise import FlowDenoise, FlowState
from fv_core.loop.samplers.sigmas import schedule
from fv_core.program import text_to_video
from fv_core.request import Numerics, ResolvedRequest, Size, TaskType

SEMANTICS = "flow.unipc2.cfg/v1"
SPEC = LoopSpec(loop="fv_core.loop.flow_denoise:FlowDenoise", semantics=SEMANTICS, binds={"denoiser": "dit"})
CARD = ModelCard(
    model_id="toy/tiny",
    family="toy",
    version="1",
    components={name: ComponentSpec(load=f"toy:{name}") for name in ("text", "dit", "low", "vae")},
    loops={"denoise": SPEC},
    programs={TaskType.T2V: text_to_video(encode="text", denoise="denoise", decode="decode")},
    recipe=RecipeSpec(assumes_loop=SEMANTICS, shift=3.0),
)
REQUEST = ResolvedRequest(
    model="toy/tiny", task=TaskType.T2V, prompt="p", negative_prompt="", seed=5, size=Size(32, 16), frames=9, fps=8.0,
    steps=4, guidance=5.0, numerics=Numerics.EXACT, params={},
)  # fmt: skip
ENV = LoopEnv(device=torch.device("cpu"), scope="r1/denoise", owner="r1")
COND = ValueRef(hash="cond")
UNCOND = ValueRef(hash="uncond")


def loop_of(**params: Any) -> FlowDenoise:
    binds = {"denoiser": "dit", **({"denoiser_low": "low"} if params.get("boundary") is not None else {})}
    return FlowDenoise(CARD, replace(SPEC, params=params, binds=binds))


def begin(loop: FlowDenoise, request: ResolvedRequest = REQUEST, *, guided: bool = True) -> FlowState:
    inputs = {"cond": COND, **({"uncond": UNCOND} if guided else {})}
    return loop.init(request, inputs, ENV)


def plan_of(loop: FlowDenoise, state: FlowState) -> WorkPlan:
    plan = loop.next(state)
    assert isinstance(plan, WorkPlan)
    return plan


def answer(plan: WorkPlan, seed: int = 0) -> StepResult:
    """Random velocities for each call of a plan."""
    generator = torch.Generator("cpu").manual_seed(100 * plan.step + seed)
    latents = [call.rows["latent"] for call in plan.calls]
    outputs = [
        CallOutput(tensors={"velocity": torch.randn(latent.shape, generator=generator)})
        for latent in latents
        if isinstance(latent, Tensor)
    ]
    return StepResult(outputs=tuple(outputs), caches=tuple(() for _ in outputs))


def run(loop: FlowDenoise, state: FlowState) -> list[WorkPlan]:
    plans = []
    while isinstance(plan := loop.next(state), WorkPlan):
        plans.append(plan)
        state = advance(loop, state, answer(plan))
    return plans


def test_steps_ask_for_both_branches_at_each_noise_level() -> None:
    loop = loop_of()
    plans = run(loop, begin(loop))
    grid = schedule(SigmaRule.DIFFUSERS, 4, 3.0)
    assert loop.total(REQUEST) == len(plans) == 4
    assert [(plan.kind, plan.step, plan.total) for plan in plans] == [
        (WorkKind.FLOW_DENOISE, step, 4) for step in range(4)
    ]
    assert [plan.sigma for plan in plans] == grid.sigmas[:-1].tolist()
    for plan, timestep in zip(plans, grid.timesteps, strict=True):
        assert [(call.component, call.op, call.branch, call.group) for call in plan.calls] == [
            ("dit", "velocity", "cond", None),
            ("dit", "velocity", "uncond", None),
        ]
        assert [call.rows["text"] for call in plan.calls] == [COND, UNCOND]
        assert {call.rows["timestep"] for call in plan.calls} == {timestep}
        assert all(not call.static and not call.caches for call in plan.calls)


def test_without_an_unconditional_prompt_there_is_one_branch() -> None:
    loop = loop_of()
    assert [call.branch for call in plan_of(loop, begin(loop, guided=False)).calls] == ["cond"]


def test_joint_guidance_groups_the_branches_unconditional_first() -> None:
    loop = loop_of(cfg="joint")
    assert [(call.branch, call.group) for call in plan_of(loop, begin(loop)).calls] == [
        ("uncond", "cfg"),
        ("cond", "cfg"),
    ]


def test_experts_part_at_the_boundary() -> None:
    loop = loop_of(boundary=0.8)
    assert schedule(SigmaRule.DIFFUSERS, 4, 3.0).timesteps == (999, 900, 750, 500)
    assert [plan.calls[0].component for plan in run(loop, begin(loop))] == ["dit", "dit", "low", "low"]


def test_guidance_is_the_requests_or_that_of_the_low_noise_expert() -> None:
    loop = loop_of(boundary=0.8, guidance_low=2.0)
    state = begin(loop)
    for scale in (5.0, 5.0, 2.0, 2.0):
        result = answer(plan_of(loop, state))
        cond, uncond = (output.tensors["velocity"] for output in result.outputs)
        prediction = loop.predict(state, result)
        assert torch.equal(prediction.velocity, uncond + scale * (cond - uncond))
        assert torch.equal(prediction.x0, state.latent - state.sigmas[state.step] * prediction.velocity)
        state = advance(loop, state, result)
    assert isinstance(loop.next(state), Done)


def test_a_step_can_be_repeated_and_changes_nothing_it_was_given() -> None:
    loop = loop_of()
    state = advance(loop, first := begin(loop), answer(plan_of(loop, first)))
    kept, result = state.latent.clone(), answer(plan_of(loop, state), seed=1)
    one, again = advance(loop, state, result), advance(loop, state, result)
    assert torch.equal(one.latent, again.latent)
    assert torch.equal(state.latent, kept)
    assert (state.step, one.step) == (1, 2)


def test_one_loop_object_serves_requests_side_by_side() -> None:
    loop, alone = loop_of(), loop_of()
    requests = [REQUEST, replace(REQUEST, seed=6, steps=2), replace(REQUEST, guidance=2.0)]
    expected = []
    for request in requests:
        state = begin(alone, request)
        while isinstance(plan := alone.next(state), WorkPlan):
            state = advance(alone, state, answer(plan))
        expected.append(alone.finalize(state).slots["latent"])
    states = [begin(loop, request) for request in requests]
    for _ in range(4):
        for index, state in enumerate(states):
            if isinstance(plan := loop.next(state), WorkPlan):
                states[index] = advance(loop, state, answer(plan))
    for state, latent in zip(states, expected, strict=True):
        assert torch.equal(loop.finalize(state).slots["latent"], latent)  # type: ignore[arg-type]


def test_initial_latent_lies_on_the_cards_grid_and_depends_on_the_seed_alone() -> None:
    loop = loop_of()
    noise = torch.randn(1, 16, 3, 2, 4, generator=torch.Generator("cpu").manual_seed(5))
    assert torch.equal(begin(loop).latent, noise[0])
    assert torch.equal(begin(loop, replace(REQUEST, steps=9, guidance=1.0)).latent, noise[0])
    assert not torch.equal(begin(loop, replace(REQUEST, seed=6)).latent, noise[0])


@pytest.mark.parametrize(
    ("shift", "params", "expected"), [(3.0, {}, 3.0), (3.0, {"shift": 8.0}, 8.0), (1.0, {"shift": 2}, 2.0)]
)
def test_shift_is_the_requests_or_the_recipes(
    shift: float, params: dict[str, float], expected: float
) -> None:
    loop = FlowDenoise(derive(CARD, recipe={"shift": shift}), SPEC)
    state = begin(loop, replace(REQUEST, params=params))
    assert torch.equal(state.sigmas, schedule(SigmaRule.DIFFUSERS, 4, expected).sigmas)


def test_sigma_rule_is_the_recipes() -> None:
    loop = FlowDenoise(derive(CARD, recipe={"sigma_rule": SigmaRule.WAN_OFFICIAL}), SPEC)
    assert begin(loop).timesteps == schedule(SigmaRule.WAN_OFFICIAL, 4, 3.0).timesteps


def test_embeddings_are_passed_by_reference_only() -> None:
    with pytest.raises(TypeError, match="by reference"):
        loop_of().init(REQUEST, {"cond": torch.zeros(4, 8)}, ENV)


def test_prediction_is_differentiable() -> None:
    loop = loop_of()
    state = begin(loop)
    result = answer(plan_of(loop, state))
    for output in result.outputs:
        output.tensors["velocity"].requires_grad_()
    loop.predict(state, result).x0.sum().backward()
    assert all(output.tensors["velocity"].grad is not None for output in result.outputs)
