"""A request that an engine has taken on: step it, snapshot it, cancel it, and close it whatever happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch

from fv_core.errors import FvError
from fv_core.loop import Emission, StepResult
from fv_core.loop.outputs import described
from fv_core.media import frames_from_video
from fv_core.request import Failed, Finished, Loading, MediaChunk, RequestEvent, Started, StepDone
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.execution.executor import Executed, execute_timed
from fv_core.runtime.faults import as_fv_error, contained
from fv_core.runtime.instance import closed
from fv_core.runtime.run import RequestRun
from fv_core.runtime.scheduler.pricing import Quote, StepKey
from fv_core.runtime.scope import over

Observer: TypeAlias = Callable[[RequestEvent], None]


class Job:
    """One request on its way. It ends with `error` None or not; `close` gives back everything it holds."""

    def __init__(self, run: RequestRun, quote: Quote, observer: Observer | None = None) -> None:
        self.run = run
        self.quote = quote
        self.error: FvError | None = None
        self.seconds = 0.0
        self._observer = observer
        self._rounds: list[float] = []

    @property
    def done(self) -> bool:
        return self.error is not None or self.run.done

    @property
    def eta(self) -> float | None:
        """Seconds to its end if it goes on alone; None until steps of all kinds that are left were measured here."""
        return None if self.error is not None else self.quote.eta_s

    def announce(self) -> None:
        """Tells the observer that the request was accepted."""
        run = self.run
        self._tell(
            Started(
                request_id=run.id,
                model=run.request.model,
                seed=run.request.seed,
                total_steps=run.total_steps(),
                adjusted=run.notes,
            )
        )

    def step(self) -> None:
        """One step of this job alone; a failure is kept in `error`.

        Raises:
            RunError: FV509, it is done or was closed.
        """
        advance([self])

    def require_going(self) -> None:
        """Raises:
        RunError: FV509, the job is done, or was closed by who started it.
        """
        if self.done:
            raise over(self.run.id, "has no step left: it is done") from self.error
        if self.run.scope.closed and not self.run.instance.closed:
            raise over(self.run.id, "has no step left: it was closed")

    def work(self) -> Work | None:
        """The next step; None if asking for it failed."""
        if self.run.instance.closed:
            self.fail(closed(f"model {self.run.request.model}"))
            return None
        try:
            with contained(f"loop of node {self.run.current.id}"):
                work = self.run.work()
        except Exception as error:
            self.fail(as_fv_error(error, f"loop of node {self.run.current.id}"))
            return None
        for component in dict.fromkeys(call.component for call in work.plan.calls):
            if component not in work.instance.loaded:
                self._tell(Loading(request_id=self.run.id, component=component))
        return work

    def accept(self, work: Work, executed: Executed, round_s: float) -> None:
        """Takes in what a step came to; `round_s` is what it took with all that it was executed with."""
        result, seconds = executed.result, executed.seconds
        if isinstance(result, FvError):
            self.fail(result)
            return
        node = self.run.current
        try:
            with contained(f"loop of node {node.id}"):
                chunks = self._chunks(self.run.commit(work, result))
        except Exception as error:
            self.fail(as_fv_error(error, f"loop of node {node.id}", _came_back(work, result)))
            return
        self.seconds += seconds
        self.quote.did(node.id, work.plan.step + 1, last=node.id in self.run.finished)
        self._tell_step(node.id, node.label, work, seconds, round_s)
        for chunk in chunks:
            self._tell(chunk)
        if self.run.done:
            self._tell(Finished(request_id=self.run.id, seconds=self.seconds))

    def fail(self, error: FvError) -> None:
        """Ends the job; what it holds goes back at once, not when its neighbours are done."""
        self.error = error
        self.close()
        self._tell(Failed(request_id=self.run.id, code=error.code, message=error.message))

    def close(self) -> None:
        """Gives back everything the request holds."""
        self.run.scope.close()

    def _tell_step(self, node: str, label: str, work: Work, seconds: float, round_s: float) -> None:
        plan = work.plan
        if plan.step == 0:
            self._rounds.clear()
        self._rounds.append(round_s)
        mean = sum(self._rounds) / len(self._rounds)
        self._tell(
            StepDone(
                request_id=self.run.id,
                node=node,
                label=label,
                step=plan.step + 1,
                total=plan.total,
                seconds=seconds,
                eta_s=mean * (plan.total - plan.step - 1),
                left_s=self.quote.eta_s,
            )
        )

    def _chunks(self, emissions: tuple[Emission, ...]) -> list[MediaChunk]:
        if self._observer is None:
            return []
        return [
            MediaChunk(request_id=self.run.id, index=one.index, frames=frames_from_video(one.tensor))
            for one in emissions
            if one.output == "video"
        ]

    def _tell(self, event: RequestEvent) -> None:
        if self._observer is None:
            return
        try:
            self._observer(event)
        except Exception as error:
            self._observer = None
            self.run.notes += (f"the event observer was switched off: {type(error).__name__}: {error}",)


def _came_back(work: Work, result: StepResult) -> str:
    """What a loop that fails on a result was given, in words."""
    return "; ".join(
        f"{call.component}.{call.op}: "
        + ", ".join(f"{name} {described(value)}" for name, value in output.tensors.items())
        for call, output in zip(work.plan.calls, result.outputs, strict=True)
    )


@contextmanager
def closing_on_error(job: Job) -> Iterator[None]:
    """Closes the job if the block fails."""
    try:
        yield
    except BaseException:
        job.close()
        raise


@torch.no_grad()
def advance(jobs: Sequence[Job]) -> None:
    """One step of each job, together, so that compatible calls can share a forward.

    Raises:
        RunError: FV509, one of them is done or was closed; none is stepped then.
    """
    for job in jobs:
        job.require_going()
    began = time.perf_counter()
    works = [(job, job.run.current.id, work) for job in jobs if (work := job.work()) is not None]
    loops_s = time.perf_counter() - began
    done = execute_timed([work for *_, work in works])
    round_s = sum(one.seconds for one in done)
    began = time.perf_counter()
    for (job, _, work), executed in zip(works, done, strict=True):
        job.accept(work, executed, round_s)
    loops_s += time.perf_counter() - began
    _learn([(job, node, one.seconds) for (job, node, _), one in zip(works, done, strict=True)], loops_s)


def _learn(taken: Sequence[tuple[Job, str, float]], loops_s: float) -> None:
    """Tells what steps of each kind lasted, with an equal share each of what the loops took beside their calls."""
    alike: dict[StepKey, list[tuple[Job, str, float]]] = {}
    for job, node, seconds in taken:
        if job.error is None:
            alike.setdefault(job.quote.key(node), []).append((job, node, seconds + loops_s / len(taken)))
    for together in alike.values():
        job, node, _ = together[0]
        job.quote.took(node, len(together), sum(seconds for *_, seconds in together))
