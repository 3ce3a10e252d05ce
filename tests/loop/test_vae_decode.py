"""The decode loop as a state machine: one latent frame per step, its cache carried as a reference."""

from __future__ import annotations

import pytest
import torch

from fv_core.cache import CacheRef
from fv_core.card import ComponentSpec, LoopSpec, ModelCard, RecipeSpec
from fv_core.loop import CacheMode, CallOutput, Done, LoopEnv, StepResult, WorkKind, WorkPlan
from fv_core.loop.driver import advance
from fv_core.loop.vae_decode import VaeDecode, VaeDecodeState
from fv_core.request import Numerics, ResolvedRequest, Size, TaskType

SPEC = LoopSpec(loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1", binds={"vae": "vae"})
CARD = ModelCard(
    model_id="toy/tiny", family="toy", version="1", components={"vae": ComponentSpec(load="toy:vae")},
    loops={"decode": SPEC}, programs={}, recipe=RecipeSpec(assumes_loop="vae.decode/v1"),
)  # fmt: skip
REQUEST = ResolvedRequest(
    model="toy/tiny", task=TaskType.T2V, prompt="p", negative_prompt="", seed=5, size=Size(32, 16), frames=9, fps=8.0,
    steps=4, guidance=5.0, numerics=Numerics.EXACT, params={},
)  # fmt: skip
ENV = LoopEnv(device=torch.device("cpu"), scope="r1/decode", owner="r1")
LATENT = torch.arange(16 * 3 * 2 * 4, dtype=torch.float32).view(16, 3, 2, 4)


def answer(plan: WorkPlan, step: int) -> StepResult:
    """What a decoder would return: as many frames as the chunk has, all of one value."""
    (call,) = plan.calls
    if call.op == "prepare":
        return StepResult(outputs=(CallOutput(tensors={"latent": LATENT + 1}),), caches=((),))
    frames = torch.full((1 if call.static["first"] else 4, 16, 32, 3), step / 10)
    (use,) = call.caches
    following = CacheRef(pool=use.ref.pool, id=use.ref.id, version=use.ref.version + 1, owner=use.ref.owner)
    return StepResult(outputs=(CallOutput(tensors={"frames": frames}),), caches=((following,),))


def steps() -> list[tuple[WorkPlan, VaeDecodeState, VaeDecodeState]]:
    loop = VaeDecode(CARD, SPEC)
    taken: list[tuple[WorkPlan, VaeDecodeState, VaeDecodeState]] = []
    state = loop.init(REQUEST, {"latent": LATENT}, ENV)
    while isinstance(plan := loop.next(state), WorkPlan):
        following = advance(loop, state, answer(plan, len(taken)))
        taken.append((plan, state, following))
        state = following
    assert isinstance(loop.next(state), Done)
    return taken


def test_one_step_prepares_and_each_further_step_decodes_one_latent_frame() -> None:
    plans = [plan for plan, _, _ in steps()]
    assert VaeDecode(CARD, SPEC).total(REQUEST) == len(plans) == 4
    assert [(plan.kind, plan.step, plan.total) for plan in plans] == [
        (WorkKind.VAE_DECODE, step, 4) for step in range(4)
    ]
    assert [plan.calls[0].op for plan in plans] == ["prepare", "decode", "decode", "decode"]
    assert [plan.calls[0].static for plan in plans[1:]] == [
        {"first": True},
        {"first": False},
        {"first": False},
    ]
    for index, plan in enumerate(plans[1:]):
        row = plan.calls[0].rows["latent"]
        assert isinstance(row, torch.Tensor)
        assert torch.equal(row, LATENT[:, index : index + 1] + 1)  # of the prepared latent


def test_cache_is_the_reference_that_the_step_before_returned() -> None:
    uses = [plan.calls[0].caches[0] for plan, _, _ in steps()[1:]]
    assert [use.ref.version for use in uses] == [0, 1, 2]
    assert {(use.mode, use.ref.pool, use.ref.id, use.ref.owner) for use in uses} == {
        (CacheMode.APPEND, "stream", "r1/decode/features", "r1")
    }


def test_each_chunk_is_emitted_once_and_numbered_without_gaps() -> None:
    loop = VaeDecode(CARD, SPEC)
    emitted = [loop.emit(old, new) for _, old, new in steps()]
    assert [[(one.index, len(one.tensor)) for one in each] for each in emitted] == [
        [], [(0, 1)], [(1, 4)], [(2, 4)],
    ]  # fmt: skip
    video = loop.finalize(steps()[-1][2]).slots["video"]
    assert isinstance(video, torch.Tensor)
    assert torch.equal(video, torch.cat([one.tensor for each in emitted for one in each]))
    assert video.shape == (9, 16, 32, 3)


def test_what_is_decoded_must_be_a_tensor() -> None:
    with pytest.raises(TypeError, match="tensor"):
        VaeDecode(CARD, SPEC).init(REQUEST, {"latent": "noise"}, ENV)
