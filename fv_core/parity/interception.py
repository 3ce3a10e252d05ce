"""An interceptor on trial: a card with it and without it, requests that differ, and every call that it sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from fv_core.card import ModelCard
from fv_core.extend import At, InterceptorSpec
from fv_core.extend.chain import Chain, Enabled, StateKey
from fv_core.loop import CallOutput, ComponentCall, StepResult, WorkPlan
from fv_core.parity.bits import Bits, bits
from fv_core.parity.taps import steps
from fv_core.parity.trial import Trial
from fv_core.plugins import find_interceptor
from fv_core.request import Numerics, Request
from fv_core.runtime.engine import Engine
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.extensions import enable
from fv_core.runtime.gain import Always
from fv_core.runtime.records.probes import probes
from fv_core.runtime.requests.resolve import resolve
from fv_core.runtime.run import RequestRun

_STEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A call of the interceptor's kinds. `state` is its state before; `answered`: it answered the call itself."""

    enabled: Enabled
    plan: WorkPlan
    call: ComponentCall
    state: Any
    output: CallOutput
    answered: bool

    @property
    def at(self) -> At:
        return At.of(self.call, self.plan)

    @property
    def place(self) -> str:
        return f"{self.call.component}.{self.call.op} ({self.call.branch}, step {self.plan.step + 1})"


class InterceptorTrial:
    """An interceptor and a card to try it on. Use it as a context manager, or `close` it.

    It runs as one that alters nothing, so that exact numerics lets it: what is asked here is that its own bits are
    the same however a request runs. What the card comes to without it is measured first. Requests of fewer than 12
    steps take 12 where the card allows: an interceptor may begin late.

    Args:
        interceptor: an id or a record. params: what it is switched on with; such that it acts on the requests.
        requests: what is run, at least two that differ; None: the card's probes.
    """

    def __init__(
        self,
        interceptor: str | InterceptorSpec,
        card: ModelCard,
        *,
        params: Mapping[str, float | int | str | bool] | None = None,
        device: str = "auto",
        dtype: str = "auto",
        requests: Sequence[Request] | None = None,
    ) -> None:
        given = requests or probes(card)
        longer = [_lengthened(request, card) for request in given]
        self.plain = Trial(card, device=device, dtype=dtype, requests=longer)
        self.untouched = self.plain.alone
        self.spec = find_interceptor(interceptor) if isinstance(interceptor, str) else interceptor
        self.params = dict(params or {})
        self.card = card

    @property
    def requests(self) -> tuple[Request, ...]:
        return self.plain.requests

    @cached_property
    def engine(self) -> Engine:
        """Raises:
        FvError: the interceptor cannot be switched on.
        """
        return self.new_engine(self.card, replace(self.spec, distribution_altering=False))

    def new_engine(self, card: ModelCard, *specs: InterceptorSpec) -> Engine:
        """An engine with these interceptors, or none."""
        return Engine(
            [card],
            device=self.plain.device,
            dtype=self.plain.dtype,
            offload="none",
            reuse=False,
            extensions=[(spec, self.params) for spec in specs],
            gain=Always(),
        )

    def fresh(self) -> Enabled:
        """The interceptor made anew, as another process makes it."""
        (enabled,) = enable([(replace(self.spec, distribution_altering=False), self.params)])
        return enabled

    @cached_property
    def alone(self) -> tuple[Bits, ...]:
        """What each request comes to with it, alone.

        Raises:
            FvError: what ended the first that failed.
        """
        return tuple(self.run(request) for request in self.requests)

    def run(self, request: Request) -> Bits:
        """Raises:
        FvError: what ended the request.
        """
        return bits(self.engine.run(request).tensors)

    def moments(self, request: Request, engine: Engine | None = None) -> Iterator[Moment]:
        """Every call of the request that the interceptor sees, or would see on an engine without it.

        Each is told after its step is done and before the next one is.

        Raises:
            FvError: what ended the request.
        """
        seen: list[Moment] = []
        with closing((engine or self.engine).start(request)) as job:
            states = dict(job.run.chain.states)

            def look(run: RequestRun, work: Work, result: StepResult) -> None:
                if work.plan.kind in self.spec.loop_kinds:
                    (one,) = run.extensions or (self.fresh(),)
                    seen.extend(_seen(one, run.chain, work.plan, result, states))

            for _ in steps(job, look):
                yield from seen
                seen.clear()
                if not job.done:
                    states = dict(job.run.chain.states)

    def close(self) -> None:
        self.plain.close()
        if "engine" in vars(self):
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _lengthened(request: Request, card: ModelCard) -> Request:
    settled = resolve(request, card, Numerics.EXACT)
    most = card.limits.steps[1]
    if card.recipe.steps_fixed or "steps" in card.programs[settled.task].fixed or settled.steps >= _STEPS:
        return request
    return replace(request, steps=min(_STEPS, most))


def _seen(
    one: Enabled, chain: Chain, plan: WorkPlan, result: StepResult, states: Mapping[StateKey, Any]
) -> Iterator[Moment]:
    for call, output in zip(plan.calls, result.outputs, strict=True):
        key = (one.spec.id, call.branch)
        yield Moment(
            enabled=one,
            plan=plan,
            call=call,
            state=states[key] if key in states else one.interceptor.initial(one.params),
            output=output,
            answered=chain.answerer(call, plan) is not None,
        )
