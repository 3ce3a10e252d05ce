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
from fv_core.runtime.calls import Work
from fv_core.runtime.engine import Engine
from fv_core.runtime.job import Job

_TOGETHER = 4


def interleave(trial: Trial) -> Finding:
    """Requests that take steps in turn come to the bits that each comes to alone, in either order."""
    wrong = []
    for order in (1, -1):
        beside = together(trial.engine, trial.requests[::order])[::order]
        wrong += differing(beside, trial.alone)
    return Finding(wrong=wrong, of=2 * len(trial.requests), counted="interleaved requests that differ")


def batch(trial: Trial) -> Finding:
    """Requests of one shape are stepped together: under exact numerics to the bits that each comes to alone.

    Under fast numerics, where they share forwards, one comes to the same bits among any neighbours: forwards of equal
    shapes run the same kernels, so that nothing but a look at the other rows can change its own.
    """
    request = replace(trial.requests[0], numerics=Numerics.EXACT)
    ours, theirs, others = (_alike(request, first) for first in (0, _TOGETHER, 2 * _TOGETHER))
    wrong = differing(together(trial.engine, ours), [trial.run(one) for one in ours])
    shared = (
        [replace(one, numerics=Numerics.FAST) for one in (ours[0], *neighbours[1:])]
        for neighbours in (theirs, others)
    )
    one, other = (together(trial.engine, requests)[:1] for requests in shared)
    wrong += [f"among others in a shared forward: {each}" for each in differing(one, other)]
    return Finding(wrong=wrong, of=_TOGETHER + 1, counted="requests that differ with their neighbours")


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
