"""Autoregressive decode: what it asks for, when it ends, and where its randomness comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core.cache import CacheRef, ValueRef
from fv_core.card import LoopSpec, ModelCard
from fv_core.errors import CardError
from fv_core.loop import CacheMode, CallOutput, Done, LoopEnv, StepResult, WorkKind, WorkPlan
from fv_core.loop.ar_decode import ArDecode, ArState
from fv_core.loop.driver import advance
from fv_core.request import Numerics, ResolvedRequest, Size, TaskType
from fv_wan21.card import MICRO

SPEC = LoopSpec(
    loop="fv_core.loop.ar_decode:ArDecode",
    semantics="ar.sample/v1",
    binds={"decoder": "transformer"},
    params={"stop": (9, 8)},
)
CARD: ModelCard = MICRO
ENV = LoopEnv(device=torch.device("cpu"), scope="r1/answer", owner="r1")
REQUEST = ResolvedRequest(
    model="wan21/micro", task=TaskType.QA, prompt="x", negative_prompt="", seed=5, size=Size(16, 16), frames=0,
    fps=8.0, steps=0, guidance=1.0, numerics=Numerics.EXACT, params={"max_tokens": 4, "temperature": 0.5},
)  # fmt: skip
PROMPT = ValueRef(hash="p")


def begin(request: ResolvedRequest = REQUEST, **inputs: Any) -> ArState:
    return ArDecode(CARD, SPEC).init(request, {"tokens": PROMPT, **inputs}, ENV)


def result(state: ArState, token: int, position: int) -> StepResult:
    plan = ArDecode(CARD, SPEC).next(state)
    assert isinstance(plan, WorkPlan)
    (use,) = plan.calls[0].caches
    ref = CacheRef(pool="paged_kv", id=use.into or use.ref.id, version=use.ref.version + 1, owner="r1")
    tensors = {
        "token": torch.tensor(token),
        "position": torch.tensor(position),
        "logprob": torch.tensor(-0.5),
    }
    return StepResult(outputs=(CallOutput(tensors=tensors),), caches=((ref,),))


def written(*tokens: int, state: ArState | None = None) -> ArState:
    loop, state = ArDecode(CARD, SPEC), state or begin()
    for count, token in enumerate(tokens):
        state = advance(loop, state, result(state, token, 10 + count))
    return state


def plan_of(state: ArState) -> WorkPlan:
    plan = ArDecode(CARD, SPEC).next(state)
    assert isinstance(plan, WorkPlan)
    return plan


def test_prompt_is_fed_whole_and_then_each_token_at_its_position() -> None:
    first, second = plan_of(begin(position=3)), plan_of(written(4))
    assert (first.kind, first.step, first.total) == (WorkKind.AR_DECODE, 0, 4)
    assert (first.calls[0].op, second.calls[0].op) == ("prefill_sample", "decode_sample")
    assert first.calls[0].rows["tokens"] == PROMPT
    assert (first.calls[0].rows["position"], first.calls[0].rows["temperature"]) == (3, 0.5)
    assert (second.calls[0].rows["token"], second.calls[0].rows["position"]) == (4, 10)


def test_context_of_another_node_is_forked_and_never_changed() -> None:
    context = CacheRef(pool="paged_kv", id="r1/context/gen", version=3, owner="r1")
    state = begin(context=context)
    (use,) = plan_of(state).calls[0].caches
    assert (use.ref, use.mode, use.into) == (context, CacheMode.APPEND, "r1/answer/context")
    (following,) = plan_of(written(4, state=state)).calls[0].caches
    assert (following.ref.id, following.into) == ("r1/answer/context", "")


@pytest.mark.parametrize(("tokens", "ended"), [((), False), ((1,), False), ((9,), True), ((1, 8), True)])
def test_a_stop_token_ends_it(tokens: tuple[int, ...], ended: bool) -> None:
    assert isinstance(ArDecode(CARD, SPEC).next(written(*tokens)), Done) is ended


def test_the_limit_ends_it_and_what_was_written_comes_out() -> None:
    loop, state = ArDecode(CARD, SPEC), written(1, 2, 3, 4)
    assert isinstance(loop.next(state), Done)
    tokens = loop.finalize(state).slots["tokens"]
    assert isinstance(tokens, torch.Tensor)
    assert (tokens.tolist(), tokens.dtype) == ([1, 2, 3, 4], torch.int64)


def test_each_step_draws_from_the_requests_own_stream() -> None:
    drawn = [plan_of(written(*[1] * count)).calls[0].rows["uniform"] for count in range(3)]
    again = torch.rand(3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    assert drawn == again.tolist()
    assert plan_of(begin(replace(REQUEST, seed=6))).calls[0].rows["uniform"] != drawn[0]


@pytest.mark.parametrize(
    "inputs", [{"tokens": "text"}, {"position": "x"}, {"position": True}, {"context": 3}], ids=repr
)
def test_inputs_of_another_kind_are_refused(inputs: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        begin(REQUEST, **inputs)


@pytest.mark.parametrize("params", [{}, {"stop": ()}, {"stop": ("a",)}, {"stop": (1,), "other": 1}], ids=repr)
def test_parameters_that_would_never_end_a_text_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(CardError) as caught:
        ArDecode(CARD, replace(SPEC, params=params))  # type: ignore[arg-type]
    assert caught.value.code == "FV206"
