"""The generic autoregressive decode: one token per step, sampled inside the component, until a stop token or a limit.

The component returns a token and its log-probability, never its logits: those of a vocabulary of 150,000 are not worth
moving. Randomness is the loop's: each step hands in a uniform number, drawn from the request's own stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import torch
from torch import Tensor

from fv_core.cache import CacheRef, ValueRef
from fv_core.card import LoopSpec, ModelCard
from fv_core.errors import RequestError
from fv_core.loop.contract import LoopEnv, LoopOutputs, Slot
from fv_core.loop.outputs import WHOLE, tensor_of
from fv_core.loop.params import check_roles, read_params
from fv_core.loop.rng import seed_state, torch_uniform
from fv_core.loop.work import (
    CacheMode,
    CacheUse,
    ComponentCall,
    Done,
    Emission,
    StepResult,
    WorkKind,
    WorkPlan,
)
from fv_core.request import ResolvedRequest

COLDEST: Final = 1e-3
"""Smallest temperature that logits are divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArParams:
    """`stop`: ids of the tokens that end the text, at least one."""

    stop: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.stop:
            raise ValueError("stop names no token: the text would never end by itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArState:
    """Everything that changes while a text is written.

    Args:
        prompt: ids that step 0 feeds, int64 [L].
        position: of the next token that is fed.
        tokens: ids written so far.
        limit: the most that there may be.
        temperature: 0 takes the likeliest token.
        uniform: the number in [0, 1) that the next token is sampled with; rng: the stream after it.
        cache: the context, of class `paged_kv`.
        fork_of: the context of another node that step 0 goes on from without changing it; None starts afresh.
    """

    prompt: Tensor | ValueRef
    position: Tensor | ValueRef | int
    tokens: tuple[int, ...]
    limit: int
    temperature: float
    uniform: float
    rng: Tensor
    cache: CacheRef
    fork_of: CacheRef | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArPrediction:
    """The sampled token, int64, its position, int64, and its log-probability, fp32; each 0-d."""

    token: Tensor
    position: Tensor
    logprob: Tensor


class ArDecode:
    """Role: `decoder`. Reads `tokens` (int64 [L], L >= 1) and optionally `context` (a `paged_kv` cache to go on from)
    and `position` (of the first token; 0); writes `tokens`: int64 [N], those written, the stop token included.

    Step 0 is op `prefill_sample` (rows tokens [L], position, temperature, uniform), each further one `decode_sample`
    (rows token, position, temperature, uniform). Both append to one cache and return ArPrediction's fields by name:
    `position` is that of the sampled token. Reads the request's parameters `max_tokens` and `temperature`.
    """

    semantics: ClassVar[tuple[str, ...]] = ("ar.sample/v1",)
    State: ClassVar[type] = ArState
    Params: ClassVar[type] = ArParams
    request_params: ClassVar[tuple[str, ...]] = ("max_tokens", "temperature")

    def __init__(self, card: ModelCard, spec: LoopSpec) -> None:
        owner = f"card {card.model_id}"
        self._stop = read_params(ArParams, spec.params, owner=owner).stop
        check_roles(spec, ("decoder",), owner=owner)
        self._component = spec.binds["decoder"]

    def total(self, request: ResolvedRequest) -> int:
        temperature = request.params["temperature"]
        if 0 < float(temperature) < COLDEST:
            raise RequestError(
                "FV310",
                name="parameter temperature",
                value=temperature,
                rule="is so small that it overflows",
                legal=f"0, or {COLDEST:g} and more",
                remedy="Give 0 to take the likeliest token each time.",
            )
        return int(request.params["max_tokens"])

    def init(self, request: ResolvedRequest, inputs: Mapping[str, Slot], env: LoopEnv) -> ArState:
        prompt, position, context = inputs["tokens"], inputs.get("position", 0), inputs.get("context")
        if not isinstance(prompt, (Tensor, ValueRef)):
            raise TypeError(f"tokens are a tensor, got {type(prompt).__name__}")
        if isinstance(position, bool) or not isinstance(position, (Tensor, ValueRef, int)):
            raise TypeError(f"a position is a whole number, got {type(position).__name__}")
        if context is not None and not isinstance(context, CacheRef):
            raise TypeError(f"a context is a cache, got {type(context).__name__}")
        uniform, rng = torch_uniform(seed_state(request.seed))
        return ArState(
            prompt=prompt,
            position=position,
            tokens=(),
            limit=self.total(request),
            temperature=float(request.params["temperature"]),
            uniform=uniform,
            rng=rng,
            cache=env.cache("paged_kv", "context"),
            fork_of=context,
        )

    def next(self, state: ArState) -> WorkPlan | Done:
        if self._ended(state):
            return Done()
        written = state.tokens
        call = ComponentCall(
            component=self._component,
            op=self._op(state),
            rows={
                **({"token": written[-1]} if written else {"tokens": state.prompt}),
                "position": state.position,
                "temperature": state.temperature,
                "uniform": state.uniform,
            },
            caches=(self._context(state),),
        )
        return WorkPlan(calls=(call,), kind=WorkKind.AR_DECODE, step=len(written), total=state.limit)

    def predict(self, state: ArState, result: StepResult) -> ArPrediction:
        (output,) = result.outputs
        of = f"{self._component}.{self._op(state)}"
        return ArPrediction(
            token=tensor_of(output, "token", of=of, shape=(), dtypes=WHOLE),
            position=tensor_of(output, "position", of=of, shape=(), dtypes=WHOLE),
            logprob=tensor_of(output, "logprob", of=of, shape=()),
        )

    def update(self, state: ArState, prediction: ArPrediction, result: StepResult) -> ArState:
        uniform, rng = torch_uniform(state.rng)
        return replace(
            state,
            position=int(prediction.position),
            tokens=(*state.tokens, int(prediction.token)),
            uniform=uniform,
            rng=rng,
            cache=result.caches[0][0],
            fork_of=None,
        )

    def emit(self, old: ArState, new: ArState) -> tuple[Emission, ...]:
        return ()

    def finalize(self, state: ArState) -> LoopOutputs:
        return LoopOutputs(slots={"tokens": torch.tensor(state.tokens, dtype=torch.int64)})

    def _ended(self, state: ArState) -> bool:
        return len(state.tokens) == state.limit or (bool(state.tokens) and state.tokens[-1] in self._stop)

    def _op(self, state: ArState) -> str:
        return "decode_sample" if state.tokens else "prefill_sample"

    def _context(self, state: ArState) -> CacheUse:
        if state.fork_of is not None:
            return CacheUse(ref=state.fork_of, mode=CacheMode.APPEND, into=state.cache.id)
        return CacheUse(ref=state.cache, mode=CacheMode.APPEND)
