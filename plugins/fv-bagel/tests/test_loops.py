"""The loops by themselves: which blocks make which context, and what a step of an image computes and combines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_bagel.card import TINY
from fv_bagel.context import BuildContext, ContextState
from fv_bagel.denoise import DenoiseImage, ImageState, times
from fv_bagel.grid import pack
from fv_bagel.guidance import Renorm, guided
from fv_core import Request
from fv_core.cache import CacheRef
from fv_core.errors import CardError, RequestError
from fv_core.loop import CacheMode, CallOutput, Done, LoopEnv, StepResult, WorkPlan
from fv_core.request import Numerics, ResolvedRequest, Size
from fv_core.runtime.requests.resolve import resolve

ENV = LoopEnv(device=torch.device("cpu"), scope="r/context", owner="r")
IDS = torch.arange(5)


def settled(**changes: Any) -> ResolvedRequest:
    params = changes.pop("params", {})
    request = resolve(
        Request(prompt="a", seed=3, size=(32, 32), params=params, **changes), TINY, Numerics.REFERENCE
    )
    assert request.size == Size(32, 32)
    return request


def build(loop: str, **inputs: Any) -> tuple[list[tuple[str, str, str, int]], dict[str, Any]]:
    """Each step of a context: op, the cache it goes on from and the one it makes, and its position; and the end."""
    builder = BuildContext(TINY, TINY.loops[loop])
    state, steps = builder.init(settled(), {"text": IDS, **inputs}, ENV), list[tuple[str, str, str, int]]()
    while not isinstance(plan := builder.next(state), Done):
        (call,) = plan.calls
        (use,) = call.caches
        assert use.mode is CacheMode.APPEND
        steps.append((call.op, use.ref.id, use.into, int(call.rows["position"])))  # type: ignore[arg-type]
        state = after(builder, state, plan)
    made = builder.finalize(state).slots
    return steps, {name: slot.id if isinstance(slot, CacheRef) else slot for name, slot in made.items()}


def after(builder: BuildContext, state: ContextState, plan: WorkPlan) -> ContextState:
    made = CacheRef(pool="paged_kv", id=plan.calls[0].caches[0].into, version=1, owner="r")
    result = StepResult(outputs=(CallOutput(tensors={}),), caches=((made,),))
    return builder.update(state, builder.predict(state, result), result)


EMPTY, ONE, TWO, THREE, FOUR = "r/context/empty", *(f"r/context/{number}" for number in range(4))


def test_a_prompt_alone_is_one_context_with_and_without_images() -> None:
    steps, made = build("context")
    assert steps == [("text_block", EMPTY, ONE, 0)]
    assert made == {
        "context": ONE, "no_image": ONE, "no_text": EMPTY,
        "context_position": 5, "no_image_position": 5, "no_text_position": 0,
    }  # fmt: skip


def test_instructions_come_first_in_every_context() -> None:
    steps, made = build("context", system=torch.arange(7))
    assert steps == [("text_block", EMPTY, ONE, 0), ("text_block", ONE, TWO, 7)]
    assert made == {
        "context": TWO, "no_image": TWO, "no_text": ONE,
        "context_position": 12, "no_image_position": 12, "no_text_position": 7,
    }  # fmt: skip


def test_an_edit_has_three_contexts_that_share_what_they_can() -> None:
    steps, made = build("context", latent=torch.zeros(16, 2, 2), vision=torch.zeros(4, 32))
    assert steps == [
        ("latent_block", EMPTY, ONE, 0),
        ("vision_block", ONE, TWO, 1),
        ("text_block", TWO, THREE, 2),
        ("text_block", EMPTY, FOUR, 0),
    ]
    assert made == {
        "context": THREE, "no_text": TWO, "no_image": FOUR,
        "context_position": 7, "no_text_position": 2, "no_image_position": 5,
    }  # fmt: skip


def test_a_question_has_one_context() -> None:
    steps, made = build("question", vision=torch.zeros(4, 32))
    assert [step[0] for step in steps] == ["vision_block", "text_block"]
    assert made == {"context": TWO, "context_position": 6}


def test_a_context_goes_on_from_another_one_without_changing_it() -> None:
    base = CacheRef(pool="paged_kv", id="r/other", version=1, owner="r")
    steps, made = build("question", context=base, context_position=9)
    assert steps == [("text_block", "r/other", ONE, 9)]
    assert made == {"context": ONE, "context_position": 14}


def test_a_context_without_text_or_of_another_kind_raises() -> None:
    builder = BuildContext(TINY, TINY.loops["context"])
    with pytest.raises(ValueError, match="no text"):
        builder.init(settled(), {}, ENV)
    with pytest.raises(TypeError):
        builder.init(settled(), {"text": "a"}, ENV)
    with pytest.raises(TypeError):
        builder.init(settled(), {"text": IDS, "context": IDS}, ENV)


def test_loops_refuse_parameters_that_they_do_not_read() -> None:
    spec = TINY.loops["context"]
    with pytest.raises(CardError):
        BuildContext(TINY, replace(spec, params={"guided": True, "surplus": 1}))
    with pytest.raises(CardError):
        DenoiseImage(TINY, replace(TINY.loops["denoise"], params={}))


def conditions(**different: bool) -> dict[str, Any]:
    """Contexts of the three branches; those named are the whole one."""
    found: dict[str, Any] = {}
    for number, branch in enumerate(("context", "no_text", "no_image")):
        name = "context" if different.get(branch) else branch
        found[branch] = CacheRef(pool="paged_kv", id=name, version=1, owner="r")
        found[f"{branch}_position"] = 5 if different.get(branch) else 5 + number
    return found


def begun(request: ResolvedRequest, inputs: dict[str, Any]) -> tuple[DenoiseImage, ImageState]:
    loop = DenoiseImage(TINY, TINY.loops["denoise"])
    return loop, loop.init(request, inputs, ENV)


def branches(request: ResolvedRequest, inputs: dict[str, Any], step: int = 0) -> list[str]:
    loop, state = begun(request, inputs)
    plan = loop.next(replace(state, step=step))
    assert isinstance(plan, WorkPlan)
    assert all(use.mode is CacheMode.READ for call in plan.calls for use in call.caches)
    return [call.branch for call in plan.calls]


def test_a_step_computes_the_branches_that_it_combines() -> None:
    everything = ["context", "no_text", "no_image"]
    assert branches(settled(guidance=4.0), conditions()) == everything
    assert branches(settled(guidance=1.0), conditions()) == ["context"]
    assert branches(settled(guidance=4.0, params={"image_guidance": 1.0}), conditions()) == everything[:2]
    assert branches(settled(guidance=4.0), conditions(no_image=True)) == everything[:2]


def test_guidance_is_active_from_the_upper_bound_down_to_the_lower_one() -> None:
    grid = times(4, 1.0)  # 1, 0.75, 0.5, 0.25, 0
    assert grid.tolist() == [1.0, 0.75, 0.5, 0.25, 0.0]
    request = settled(
        guidance=4.0, steps=4, params={"shift": 1.0, "interval_low": 0.25, "interval_high": 0.75}
    )
    assert [len(branches(request, conditions(), step)) for step in range(4)] == [1, 3, 3, 1]


def test_an_interval_without_times_is_refused() -> None:
    loop = DenoiseImage(TINY, TINY.loops["denoise"])
    params = {"interval_low": 0.5, "interval_high": 0.5}
    with pytest.raises(RequestError) as refusal:
        loop.total(settled(guidance=4.0, params=params))
    assert refusal.value.code == "FV310"
    assert loop.total(settled(guidance=1.0, steps=3, params=params)) == 3


def test_a_shared_forward_serves_both_branches() -> None:
    request = settled(guidance=4.0, params={"renorm_min": 1.0})
    loop, state = begun(request, conditions(no_image=True))
    v, u = torch.ones(4, 64), torch.zeros(4, 64)
    outputs = tuple(CallOutput(tensors={"velocity": tensor}) for tensor in (v, u))
    found = loop.predict(state, StepResult(outputs=outputs, caches=((), ())))
    by_text = u + 4.0 * (v - u)
    assert torch.equal(found, v + 1.5 * (by_text - v))


def test_times_begin_at_one_and_end_at_zero_whatever_the_shift() -> None:
    grid = times(5, 3.0)
    assert (float(grid[0]), float(grid[-1]), len(grid)) == (1.0, 0.0, 6)
    assert torch.allclose(grid, torch.tensor([1, 12 / 13, 9 / 11, 2 / 3, 3 / 7, 0]))


def velocities() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    v, u, i = (torch.randn(6, 8, generator=generator) for _ in range(3))
    return v, u, i


@pytest.mark.parametrize("renorm", list(Renorm))
def test_renorm_never_lengthens_and_leaves_short_ones_alone(renorm: Renorm) -> None:
    v, u, i = velocities()
    how: dict[str, Any] = {"text_scale": 4.0, "image_scale": 1.5, "renorm": renorm}
    free = guided(v, u, i, renorm_min=1.0, **how)
    assert torch.allclose(free, i + 1.5 * (u + 4.0 * (v - u) - i))
    bound = guided(v, u, i, renorm_min=0.0, **how)
    if renorm is Renorm.GLOBAL:
        assert torch.allclose(torch.norm(bound), torch.norm(v))
        assert torch.allclose(bound / torch.norm(bound), free / torch.norm(free), atol=1e-6)
    if renorm is Renorm.CHANNEL:
        lengths = torch.minimum(torch.norm(v, dim=-1), torch.norm(free, dim=-1))
        assert torch.allclose(torch.norm(bound, dim=-1), lengths)
    if renorm is Renorm.TEXT_CHANNEL:
        by_text = (bound - i) / 1.5 + i
        assert (torch.norm(by_text, dim=-1) <= torch.norm(v, dim=-1) + 1e-5).all()
    short = guided(v, v * 0.5, v * 0.5, text_scale=1.0, image_scale=1.0, renorm=renorm, renorm_min=0.0)
    assert torch.allclose(short, v)


def test_the_norm_of_an_image_knows_no_neighbour(mine: Any) -> None:
    alone = {
        prompt: mine.latent("t2i_global", prompt=prompt, steps=2) for prompt in ("a red hat", "a blue sea")
    }
    requests = [
        replace(mine.request("t2i_global", prompt=prompt, steps=2), numerics=Numerics.FAST)
        for prompt in alone
    ]
    for result, latent in zip(mine.engine.run_many(requests), alone.values(), strict=True):
        assert result.clip is not None
        assert float((pack(result.clip.tensors["latent"][:, 0], 2) - latent).abs().max()) < 1e-5
