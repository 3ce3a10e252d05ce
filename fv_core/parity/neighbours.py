"""Gates on requests that run beside others: what one comes to never depends on who its neighbours are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from fv_core.cache import CacheRef
from fv_core.codec import JSON
from fv_core.loop import held_refs
from fv_core.parity.bits import Bits, bits, fingerprint
from fv_core.parity.trial import Finding, Trial
from fv_core.request import Numerics, Request
from fv_core.runtime.engine import Engine
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.job import Job, advance

_TOGETHER = 4


def interleave(trial: Trial) -> Finding:
    """Requests that take steps together, and in turn the other way round, come to the bits that each comes to alone."""
    wrong = interleaved(trial.engine, trial.requests, trial.alone)
    return Finding(wrong=wrong, of=2 * len(trial.requests), counted="interleaved requests that differ")


def batch(trial: Trial) -> Finding:
    """Requests that share forwards come to what they come to alone, or at least depend on no neighbour's values.

    Under exact numerics they arrive one after another and differ in prompt, steps and guidance where the card lets
    them, and one is cancelled on the way: the others come to the bits that each has alone, and no operation was found
    to depend on its neighbours. (The engine keeps the bits of one that does by running it alone: see its `forwards`.)

    Under fast numerics a request of one shape comes to the same bits among any neighbours: forwards of equal shapes
    run the same kernels, so that nothing but a look at the other rows can change its own.
    """
    request = replace(trial.requests[0], numerics=Numerics.EXACT)
    unlike = [_unlike(trial, one, number) for number, one in enumerate(_alike(request, 0))]
    beside = _staggered(trial.engine, unlike)
    wrong = differing(beside, [trial.run(one) for one in unlike[:-1]])
    operations = trial.engine.forwards()
    wrong += [
        f"{one.component}.{one.op} gives other bits beside neighbours than alone, and yet equal batch keys under exact"
        for one in operations
        if one.dependent
    ]
    ours, theirs, others = (_alike(request, first) for first in (0, _TOGETHER, 2 * _TOGETHER))
    shared = (
        [replace(one, numerics=Numerics.FAST) for one in (ours[0], *neighbours[1:])]
        for neighbours in (theirs, others)
    )
    one, other = (together(trial.engine, requests)[:1] for requests in shared)
    wrong += [f"among others in a shared forward: {each}" for each in differing(one, other)]
    return Finding(
        wrong=wrong,
        of=_TOGETHER + len(operations),
        counted="requests and operations that depend on their neighbours",
    )


def partition(trial: Trial) -> Finding:
    """Requests that take steps in turn use cache references of their own, and no step changes another's caches."""
    wrong: list[str] = []
    looked = 0
    with ExitStack() as stack:
        jobs = [stack.enter_context(closing(trial.engine.start(request))) for request in trial.requests]
        while not wrong and (going := [job for job in jobs if not job.done]):
            for job in going:
                looked += 1
                wrong += _trespasses(job, [other for other in going if other is not job])
    return Finding(wrong=wrong, of=looked, counted="steps that reach into another request's caches")


def _trespasses(job: Job, others: Sequence[Job]) -> Iterator[str]:
    """Takes one step of `job` and tells what of it concerns the others."""
    job.run.state = job.run.state  # its plan is asked for anew, as after a resume, when others have stepped
    work = job.work()
    before = [_caches(other) for other in others if not other.done]
    if work is not None:
        at = f"{job.run.current.id} step {work.plan.step}"
        yield from (
            f"{at} uses a cache of request {ref.owner}" for ref in _used(work) if ref.owner != job.run.id
        )
        job.step()
        if [_caches(other) for other in others if not other.done] != before:
            yield f"{at} changed what another request's cache holds"
    if job.error is not None:
        yield f"beside others: {job.error.code}: {job.error.message}"


def _used(work: Work) -> Iterator[CacheRef]:
    return (use.ref for call in work.plan.calls for use in call.caches)


def _caches(job: Job) -> list[JSON]:
    """What the caches that a request holds contain, in bits."""
    held = held_refs((job.run.state, tuple(job.run.slots.values())))
    refs = sorted((ref for ref in held if isinstance(ref, CacheRef)), key=lambda ref: (ref.id, ref.version))
    return [fingerprint(job.run.scope.read(ref)) for ref in refs]


def _alike(request: Request, first: int) -> list[Request]:
    """Requests of one shape that differ in seed and prompt."""
    seed = request.seed or 0
    return [
        replace(request, seed=(seed + number) % 2**64, prompt=f"{number:02} {request.prompt}")
        for number in range(first, first + _TOGETHER)
    ]


def _unlike(trial: Trial, request: Request, number: int) -> Request:
    """The request with a longer prompt, fewer steps, and every other one with the card's least guidance."""
    limits, fixed = trial.card.limits, trial.card.recipe.steps_fixed
    steps = request.steps if request.steps is None or fixed else max(limits.steps[0], request.steps - number)
    unguided = request.guidance is not None and number % 2
    return replace(
        request,
        prompt=" ".join([request.prompt] * (1 + number)),
        steps=steps,
        guidance=limits.guidance[0] if unguided else request.guidance,
    )


def _staggered(engine: Engine, requests: Sequence[Request]) -> list[Bits | str]:
    """What each but the last comes to: every round of steps one more arrives; the last is cancelled after two steps."""
    with ExitStack() as stack:
        jobs: list[Job] = []
        rounds = 0
        while len(jobs) < len(requests) or not all(job.done for job in jobs):
            if len(jobs) < len(requests):
                jobs.append(stack.enter_context(closing(engine.start(requests[len(jobs)]))))
            elif rounds == len(requests) + 1 and not jobs[-1].done:
                jobs[-1].run.cancel.cancel()
            advance([job for job in jobs if not job.done])
            rounds += 1
        return [str(job.error) if job.error else bits(engine.clip(job).tensors) for job in jobs[:-1]]


def interleaved(engine: Engine, requests: Sequence[Request], alone: Sequence[Bits | str]) -> list[str]:
    """A sentence for every request that comes to other bits than `alone`, beside others or between their steps."""
    between = in_turn(engine, requests[::-1])[::-1]
    return differing(together(engine, requests), alone) + differing(between, alone)


def in_turn(engine: Engine, requests: Sequence[Request]) -> list[Bits | str]:
    """What each comes to where every step of one follows on a step of another; the error of one that failed."""
    with ExitStack() as stack:
        jobs = [stack.enter_context(closing(engine.start(request))) for request in requests]
        while going := [job for job in jobs if not job.done]:
            for job in going:
                job.step()
        return [str(job.error) if job.error else bits(engine.clip(job).tensors) for job in jobs]


def together(engine: Engine, requests: Sequence[Request]) -> list[Bits | str]:
    """What each comes to beside the others; the error of one that failed."""
    results = engine.run_many(requests)
    return [str(one.error) if one.clip is None else bits(one.clip.tensors) for one in results]


def differing(beside: Sequence[Bits | str], expected: Sequence[Bits | str]) -> list[str]:
    """A sentence for every request that failed, or came to other bits than expected."""
    wrong = []
    for number, (one, other) in enumerate(zip(beside, expected, strict=True), 1):
        if isinstance(one, str):
            wrong.append(f"request {number} failed beside others: {one}")
        elif one != other:
            wrong.append(f"request {number} differs beside others")
    return wrong
